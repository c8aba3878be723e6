package server

import (
	"crypto/x509"
	"fmt"
	"time"

	"github.com/hitline/hitline/lookup/access"
	"github.com/hitline/hitline/netproto"
)

// authorization is what the peer of a connection may do, and why. It belongs to the connection's
// event loop.
type authorization struct {
	times        *times // of the connection
	listener     *listener
	settings     *Settings // of the listener, those that the other fields follow from
	certificates access.Certificates
	credential   *access.Credential // nil for an anonymous peer
	permissions  access.Permissions
}

// setCredential gives the connection the permissions of a credential, or with nil those of an
// anonymous peer.
func (a *authorization) setCredential(c *access.Credential) {
	a.credential, a.permissions = c, a.settings.Rules.Anonymous
	var expires time.Time
	if c != nil {
		a.permissions, expires = c.Permissions, c.Expires
	}
	if end := a.certificates.End(); !end.IsZero() && (expires.IsZero() || end.Before(expires)) {
		expires = end
	}
	a.times.expires.Store(0)
	if !expires.IsZero() {
		a.times.expires.Store(max(expires.UnixMicro(), 1))
	}
}

// allow reports whether a request may be served now. If it may not, denied says why, or the connection
// ends. It is called before each step of a request,
// so that no step is served by an authorization that is gone.
func (s *session) allow(q *netproto.Request) bool {
	if s.settings != s.listener.settings.Load() || s.times.expiredAt(s.turn.start) {
		if !s.reauthorize(s.turn.start) {
			return false
		}
	}
	if s.permissions.Allows(q.Tag) {
		return true
	}
	if s.denied == nil {
		s.denied = s.notAllowed(q.Tag)
	}
	return false
}

// stillAuthorized reports whether the connection still has an authorization, outside of a turn. If it
// has none, it is to be closed.
func (s *session) stillAuthorized() bool {
	if s.settings == s.listener.settings.Load() && s.times.expires.Load() == 0 {
		return true
	}
	return s.reauthorize(time.Now())
}

// reauthorize sets the authorization that follows from the settings that are in effect now. If there is
// none, it returns false: replies are written, and the connection is to be closed.
func (s *session) reauthorize(now time.Time) bool {
	err := s.followSettings(now, s.pool)
	if err == nil && s.times.expiredAt(now) {
		err = errExpired
	}
	if err == nil {
		return true
	}
	s.permissions = 0
	s.conn.flush(0)
	s.conn.fail(err)
	return false
}

// followSettings sets the authorization that follows from the settings of the listener. It returns
// errRevoked if the connection would not be accepted by them, or may not use its pool p.
func (a *authorization) followSettings(now time.Time, p *pool) error {
	before, had := a.settings, a.credential
	a.settings = a.listener.settings.Load()
	if a.settings == before {
		return nil
	}
	var roots *x509.CertPool
	if a.settings.TLS != nil {
		roots = a.settings.TLS.ClientCAs
	}
	if err := a.certificates.Verify(roots, now); err != nil {
		return fmt.Errorf("%w: %w", errRevoked, err)
	}
	c := a.settings.Rules.FindCertificate(a.certificates.Names())
	if had != nil && had.Certificate == "" {
		c = a.settings.Rules.Renew(had)
	}
	switch {
	case c == nil && had != nil:
		return fmt.Errorf("%w: %s", errRevoked, had.Name)
	case p != nil && !c.MayUse(p.name):
		return fmt.Errorf("%w: %s may not use the pool of the connection any more", errRevoked, c.Name)
	}
	a.setCredential(c)
	return nil
}

// notAllowed returns the error of a request that the peer may not make.
func (a *authorization) notAllowed(tag netproto.Tag) error {
	return &notAllowedError{tag: tag, allowed: a.permissions, name: nameOf(a.credential)}
}

// checkAuthorized returns a notAllowedError if a job that has waited may not be served any more. It is
// served by the credential that it came with, if that is still there. A worker calls it.
func (j *job) checkAuthorized() error {
	now := j.session.listener.settings.Load()
	if j.settings == now {
		return nil
	}
	permissions, c := now.Rules.Anonymous, j.credential
	if c != nil {
		permissions = 0
		if c = now.Rules.Renew(c); c != nil && !c.Expired(time.Now()) {
			permissions = c.Permissions
		}
	}
	if !permissions.Allows(j.q.Tag) || j.pool != nil && !c.MayUse(j.pool.name) {
		return &notAllowedError{tag: j.q.Tag, allowed: permissions, name: nameOf(j.credential)}
	}
	j.settings, j.credential = now, c
	return nil
}

// nameOf returns the name of a credential, empty for an anonymous peer.
func nameOf(c *access.Credential) string {
	if c == nil {
		return ""
	}
	return c.Name
}
