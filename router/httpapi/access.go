package httpapi

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hitline/hitline/lookup/access"
)

// Errors of ByRules. Clients get their text.
var (
	errNotBearer = errors.New("the Authorization header must be: Bearer TOKEN")
	errToken     = errors.New("no such token")
	errNoTokens  = errors.New("this listener has no tokens; leave out the Authorization header")
	errExpired   = errors.New("the credential has expired")
)

// errConnection is the class of an error of ByRules that refuses every request of a connection. It is closed.
var errConnection = errors.New("the connection ends")

// ByRules returns a Config.Authorize by the rules that a listener has when a request arrives, and the authorities of
// which its clients need a certificate, nil if they need none. The token of Authorization: Bearer TOKEN counts, else
// the client certificate, else the sender is anonymous. An administrator is who has every permission and is bound to no
// pool. The time for a token does not depend on how much of it is right. A connection ends with its certificate: when
// that expires, and when none of the authorities accepts it any more. The http.Server should have ConnContext, without
// which certificates are verified for each request.
func ByRules(current func() (*access.Rules, *x509.CertPool)) func(*http.Request) (Access, error) {
	return func(r *http.Request) (Access, error) {
		now := time.Now()
		rules, authorities := current()
		names, err := namesOf(r, authorities, now)
		if err != nil {
			return Access{}, err
		}
		c, err := credentialOf(rules, r, names)
		switch {
		case err != nil:
			return Access{}, err
		case c == nil:
			return Access{Permissions: rules.Anonymous, Admin: rules.Anonymous&access.All == access.All}, nil
		case c.Expired(now):
			return Access{}, errExpired
		}
		return Access{Name: c.Name, Permissions: c.Permissions, Pools: c.Pools, Admin: c.IsAdmin()}, nil
	}
}

// credentialOf returns the credential of a request whose sender has a certificate with these names, nil if it has none.
func credentialOf(rules *access.Rules, r *http.Request, names []string) (*access.Credential, error) {
	header := r.Header.Get("Authorization")
	if header == "" {
		return rules.FindCertificate(names), nil
	}
	scheme, token, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return nil, errNotBearer
	}
	if c := rules.FindToken([]byte(token)); c != nil {
		return c, nil
	}
	if !rules.HasTokens() {
		return nil, errNoTokens
	}
	return nil, errToken
}

// connection is what is known of the connection of a request.
type connection struct {
	mu           sync.Mutex
	begun        bool // certificates is set
	certificates access.Certificates
}

// connectionKey is that of a *connection in the context of a request.
type connectionKey struct{}

// ConnContext is the ConnContext of an http.Server whose requests ByRules authorizes.
func ConnContext(ctx context.Context, _ net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, &connection{})
}

// namesOf returns the names in the client certificate of a request, none without one. It returns an errConnection if
// the authorities would not accept the certificate now, or want one and there is none.
func namesOf(r *http.Request, authorities *x509.CertPool, now time.Time) ([]string, error) {
	if r.TLS == nil {
		return nil, nil
	}
	conn, ok := r.Context().Value(connectionKey{}).(*connection)
	if !ok {
		conn = &connection{}
	}
	conn.mu.Lock()
	defer conn.mu.Unlock()
	if !conn.begun { // the authorities may have changed since the handshake
		conn.begun, conn.certificates = true, access.CertificatesOf(r.TLS, nil)
	}
	if err := conn.certificates.Verify(authorities, now); err != nil {
		return nil, fmt.Errorf("%w: %w", errConnection, err)
	}
	if end := conn.certificates.End(); !end.IsZero() && !now.Before(end) {
		return nil, fmt.Errorf("%w: the certificate has expired", errConnection)
	}
	return conn.certificates.Names(), nil
}

// mayUse reports whether the sender may ask about a model with this pool, nil for none.
func (a *Access) mayUse(pool *string) bool {
	return a.Pools == nil || pool != nil && slices.Contains(a.Pools, *pool)
}
