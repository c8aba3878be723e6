package httpapi

import (
	"errors"
	"net/http"
	"slices"
	"strings"
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

// ByRules returns a Config.Authorize by the rules that a listener has when a request arrives: the token of
// Authorization: Bearer TOKEN counts, else the client certificate, else the sender is anonymous. An administrator is
// who has every permission and is bound to no pool. The time for a token does not depend on how much of it is right.
func ByRules(rules func() *access.Rules) func(*http.Request) (Access, error) {
	return func(r *http.Request) (Access, error) {
		rules := rules()
		c, err := credentialOf(rules, r)
		switch {
		case err != nil:
			return Access{}, err
		case c == nil:
			return Access{Permissions: rules.Anonymous, Admin: rules.Anonymous&access.All == access.All}, nil
		case c.Expired(time.Now()):
			return Access{}, errExpired
		}
		return Access{
			Name: c.Name, Permissions: c.Permissions, Pools: c.Pools, Admin: c.Permissions&access.All == access.All && !c.IsTenant(),
		}, nil
	}
}

// credentialOf returns the credential of a request, nil if it has none.
func credentialOf(rules *access.Rules, r *http.Request) (*access.Credential, error) {
	if header := r.Header.Get("Authorization"); header != "" {
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
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return nil, nil
	}
	return rules.FindCertificate(access.NamesOf(r.TLS.PeerCertificates[0])), nil
}

// mayUse reports whether the sender may ask about a model with this pool, nil for none.
func (a *Access) mayUse(pool *string) bool {
	return a.Pools == nil || pool != nil && slices.Contains(a.Pools, *pool)
}
