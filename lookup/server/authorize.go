package server

import (
	"crypto/x509"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/hitline/hitline/lookup/access"
	"github.com/hitline/hitline/lookup/server/internal/tlspair"
	"github.com/hitline/hitline/netproto"
)

// authorize gives an accepted connection the authorization that follows from its listener and its
// certificates.
func (s *session) authorize(p *pendingConn) {
	s.listener, s.settings, s.certificates = p.listener, p.settings, p.certificates
	s.setCredential(s.settings.Rules.FindCertificate(s.certificates.Names()))
	s.beginWithFirstPool()
}

// setCredential gives the session the permissions of a credential, or with nil those of an
// anonymous peer.
func (s *session) setCredential(c *access.Credential) {
	s.credential, s.permissions = c, s.settings.Rules.Anonymous
	var expires time.Time
	if c != nil {
		s.permissions, expires = c.Permissions, c.Expires
	}
	if end := s.certificates.End(); !end.IsZero() && (expires.IsZero() || end.Before(expires)) {
		expires = end
	}
	s.conn.times.expires.Store(0)
	if !expires.IsZero() {
		s.conn.times.expires.Store(max(expires.UnixMicro(), 1))
	}
}

// beginWithFirstPool gives the connection of a tenant the first of its pools.
func (s *session) beginWithFirstPool() {
	if s.credential.IsTenant() {
		s.setPool(s.shared.pools.moveToFirst(s.credential, s.pool), nil)
	}
}

// allow reports whether a request may be served now. If it may not, denied says why, or the connection
// ends. It is called before each step of a request,
// so that no step is served by an authorization that is gone.
func (s *session) allow(q *netproto.Request) bool {
	if s.settings != s.listener.settings.Load() || s.conn.times.expiredAt(s.turn.start) {
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
	if s.settings == s.listener.settings.Load() && s.conn.times.expires.Load() == 0 {
		return true
	}
	return s.reauthorize(time.Now())
}

// reauthorize sets the authorization that follows from the settings that are in effect now. If there is
// none, it returns false: replies are written, and the connection is to be closed.
func (s *session) reauthorize(now time.Time) bool {
	err := s.followSettings(now)
	if err == nil && s.conn.times.expiredAt(now) {
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
// errRevoked if the connection would not be accepted by them, or has another pool.
func (s *session) followSettings(now time.Time) error {
	before, had := s.settings, s.credential
	s.settings = s.listener.settings.Load()
	if s.settings == before {
		return nil
	}
	var roots *x509.CertPool
	if s.settings.TLS != nil {
		roots = s.settings.TLS.ClientCAs
	}
	if err := s.certificates.Verify(roots, now); err != nil {
		return fmt.Errorf("%w: %w", errRevoked, err)
	}
	c := s.settings.Rules.FindCertificate(s.certificates.Names())
	if had != nil && had.Certificate == "" {
		c = s.settings.Rules.Renew(had)
	}
	switch {
	case c == nil && had != nil:
		return fmt.Errorf("%w: %s", errRevoked, had.Name)
	case s.pool != nil && !c.MayUse(s.pool.name):
		return fmt.Errorf("%w: %s may not use the pool of the connection any more", errRevoked, c.Name)
	}
	s.setCredential(c)
	return nil
}

// notAllowed returns the error of a request that the session may not make.
func (s *session) notAllowed(tag netproto.Tag) error {
	return &notAllowedError{tag: tag, allowed: s.permissions, name: nameOf(s.credential)}
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
	if !permissions.Allows(j.tag) || j.pool != nil && !c.MayUse(j.pool.name) {
		return &notAllowedError{tag: j.tag, allowed: permissions, name: nameOf(j.credential)}
	}
	j.settings, j.credential = now, c
	return nil
}

// pendingConn is a connection being handed to a loop, and its gnet context until OnOpen.
type pendingConn struct {
	peer         net.Addr
	listener     *listener
	settings     *Settings            // of the listener, when the connection was accepted
	certificates access.Certificates  // verified by these settings
	tls          *tlspair.Conn        // nil for a connection without TLS
	conn         atomic.Pointer[conn] // set by OnOpen, so OnClose will be called
}
