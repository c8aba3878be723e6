package server

import (
	"crypto/x509"
	"errors"
	"time"

	"github.com/hitline/hitline/lookup/access"
)

// rights are what the peer of a connection may do, and why.
type rights struct {
	listener     *listener
	settings     *Settings           // of the listener, those that the other fields follow from
	certificates []*x509.Certificate // of the client, the leaf first; nil if it has none
	credential   *access.Credential  // nil for an anonymous peer
	permissions  access.Permissions
}

// Errors of auth requests. Peers get their texts.
var (
	errNoTokens     = errors.New("this listener has no tokens")
	errToken        = errors.New("no such token")
	errTokenExpired = errors.New("the token has expired")
)

// admitted gives the session the rights of an accepted connection.
func (s *session) admitted(p *pendingConn) {
	s.listener, s.settings, s.certificates = p.listener, p.settings, p.certificates
	s.setCredential(s.settings.Rules.FindCertificate(namesOf(s.certificates)))
}

// setCredential gives the session the permissions of a credential, or with nil those of an
// anonymous peer.
func (s *session) setCredential(c *access.Credential) {
	s.credential, s.permissions = c, s.settings.Rules.Anonymous
	if c != nil {
		s.permissions = c.Permissions
	}
}

// authenticate gives the session the credential of a token. username is empty or that of the
// credential. If it fails the session has no credential. Only the event loop calls it.
func (s *session) authenticate(username string, token []byte) (*access.Credential, error) {
	rules := s.settings.Rules
	c := rules.FindToken(token)
	var err error
	switch {
	case !rules.HasTokens():
		err = errNoTokens
	case c == nil || username != "" && username != c.Name:
		err = errToken
	case c.Expired(time.Now()):
		err = errTokenExpired
	}
	if err != nil {
		c = nil
	}
	s.setCredential(c)
	return c, err
}

// namesOf returns the names that a client certificate has: DNS names, URIs, e-mail addresses and
// the common name.
func namesOf(certificates []*x509.Certificate) []string {
	if len(certificates) == 0 {
		return nil
	}
	leaf := certificates[0]
	names := append([]string(nil), leaf.DNSNames...)
	for _, uri := range leaf.URIs {
		names = append(names, uri.String())
	}
	names = append(names, leaf.EmailAddresses...)
	return append(names, leaf.Subject.CommonName)
}
