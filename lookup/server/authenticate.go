package server

import (
	"errors"
	"fmt"
	"time"

	"github.com/hitline/hitline/lookup/access"
	"github.com/hitline/hitline/lookup/api"
)

var (
	errNoTokens     = errors.New("this listener has no tokens")
	errToken        = errors.New("no such token")
	errTokenExpired = errors.New("the token has expired")
)

// authenticate gives the session the credential of a token. username is empty or that of the
// credential. If it fails with errNotAuthenticated, failAuth has been called; with another error the
// session is to be closed. The event loop calls it.
func (s *session) authenticate(username string, token []byte) (*access.Credential, error) {
	if !s.stillAuthorized() {
		return nil, s.conn.failure()
	}
	rules := s.settings.Rules
	c := rules.FindToken(token)
	switch {
	case !rules.HasTokens():
		return nil, s.failAuth(nameOf(s.credential), errNoTokens)
	case c == nil || username != "" && username != c.Name:
		return nil, s.failAuth(nameOf(s.credential), errToken)
	case c.Expired(time.Now()):
		return nil, s.failAuth(c.Name, errTokenExpired)
	}
	s.setCredential(c)
	s.beginWithFirstPool()
	return c, nil
}

// failAuth gives the session back the credential with which it began: that of its client
// certificate, or none. So a peer cannot put off what its certificate is bound to. A tenant by a
// token leaves its pool. It returns the error of the auth request, and counts and logs it with the
// name of a credential: that of an expired token, else the one that the session had.
func (s *session) failAuth(credential string, why error) error {
	err := fmt.Errorf("%w: %w", errNotAuthenticated, why)
	s.shared.peers.notAuthenticated(s.conn.peer, credential, s.listener.Address, err)
	before := s.credential
	s.setCredential(s.settings.Rules.FindCertificate(s.certificates.Names()))
	if s.credential == before {
		return err
	}
	if before.IsTenant() {
		s.leavePool()
	}
	s.beginWithFirstPool()
	return err
}

// applyAuth serves an auth request.
func applyAuth(s *session, j *job) error {
	c, err := s.authenticate("", j.q.Token)
	clear(j.q.Token)
	if err != nil {
		return err
	}
	return j.doneJSON(accessOf(c))
}

// accessOf returns what a peer with a credential may do.
func accessOf(c *access.Credential) api.Access {
	a := api.Access{Name: c.Name, Allow: c.Permissions.Names(), Pools: c.Pools}
	if !c.Expires.IsZero() {
		a.Expires = c.Expires.UTC().Format(time.RFC3339)
	}
	return a
}

// servePlain makes the reader serve the PLAIN mechanism of ZMTP if the listener has tokens: its handshake gives the
// connection a credential. It is called before the first byte: the greeting of a connection that has begun cannot
// change.
func (s *session) servePlain() {
	if !s.settings.Rules.HasTokens() {
		return
	}
	s.conn.reader.SetPlain(func(username, password []byte) bool {
		if len(password) == 0 {
			_ = s.failAuth(nameOf(s.credential), errToken)
			return false
		}
		_, err := s.authenticate(string(username), password)
		return err == nil
	})
}
