package server

import (
	"crypto/tls"
	"errors"
	"net"
	"sync/atomic"
	"time"

	"github.com/hitline/hitline/lookup/access"
	"github.com/hitline/hitline/lookup/server/internal/tlspair"
)

// tlsOwner is what a TLS connection is for: it has a conn when its handshake has ended. It implements tlspair.Owner.
type tlsOwner struct {
	acceptor *acceptor
	pending  pendingConn
	conn     atomic.Pointer[conn] // nil until OnOpen
}

// Config implements tlspair.Owner. The connection has the settings of the time of its handshake.
func (o *tlsOwner) Config() *tls.Config {
	o.pending.settings = o.pending.listener.settings.Load()
	return o.pending.settings.TLS
}

// Timeouts implements tlspair.Owner.
func (o *tlsOwner) Timeouts() (handshake, write time.Duration) {
	limits := o.acceptor.server.limits.Load()
	return limits.HandshakeTimeout, limits.WriteTimeout
}

// Serve implements tlspair.Owner: it hands the end of the pair to a loop.
func (o *tlsOwner) Serve(c *tlspair.Conn, pair *net.UnixConn, state *tls.ConnectionState) error {
	if !o.acceptor.acquireEnrolling() {
		_ = pair.Close()
		return tlspair.ErrDraining
	}
	defer func() { <-o.acceptor.enrolling }()
	p := &o.pending
	p.tls, p.owner, p.certificates = c, o, access.CertificatesOf(state, p.settings.TLS.ClientCAs)
	return o.acceptor.enroll(pair, p)
}

// Failed implements tlspair.Owner. A peer that reads nothing ends its conn.
func (o *tlsOwner) Failed(err error) {
	server, reason := o.acceptor.server, reasonOf(err)
	switch c := o.conn.Load(); {
	case reason == closedWriteTimeout && c != nil:
		c.end(reason)
	case reason == closedByPeer && !errors.Is(err, tlspair.ErrSilent):
		o.acceptor.Fail("cannot serve a connection", o.pending.listener.Address, err)
	default:
		server.peers.connectionClosed(reason, o.pending.peer, err)
	}
}

// Ended implements tlspair.Owner.
func (o *tlsOwner) Ended() { o.acceptor.server.connections.Add(-1) }
