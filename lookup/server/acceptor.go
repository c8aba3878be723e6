package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/hitline/hitline/internal/cpushare"
	"github.com/hitline/hitline/internal/loglimit"
	"github.com/hitline/hitline/internal/requesterror"
	"github.com/hitline/hitline/lookup/access"
	"github.com/hitline/hitline/lookup/server/internal/listen"
	"github.com/hitline/hitline/lookup/server/internal/tlspair"
)

// acceptor hands the connections of all listeners to the event loops.
//
// gnet's own server stops when it runs out of descriptors, and its listeners cannot be
// closed alone. So the engine is gnet's client, which has loops and no listeners.
type acceptor struct {
	*listen.Acceptor
	server    *Server
	engine    *gnet.Client
	listeners []*listener
	closed    chan struct{} // closed when nothing is accepted any more and no connection is being enrolled
	enrolling chan struct{} // a place for each connection being handed to a loop
	tls       *tlspair.Conns
	stopOnce  sync.Once
	errorLog  loglimit.Limit
}

const (
	// maxEnrolling bounds the connections being handed to a loop; each takes a second
	// descriptor meanwhile.
	maxEnrolling = 32
	// enrollWait is how long a connection waits until the one before it is counted by its
	// loop. gnet chooses the loop with the fewest connections, so this keeps loops even. A
	// loop that is busy for longer delays no other.
	enrollWait = time.Millisecond
)

// startAcceptor begins to accept connections.
func startAcceptor(s *Server, engine *gnet.Client, listeners []*listener) *acceptor {
	a := &acceptor{
		server: s, engine: engine, listeners: listeners,
		closed: make(chan struct{}), enrolling: make(chan struct{}, maxEnrolling),
	}
	sockets := make([]*listen.Socket, len(listeners))
	for i, l := range listeners {
		sockets[i] = l.Socket
	}
	a.Acceptor = listen.New(sockets, a)
	a.tls = tlspair.New(cmp.Or(s.cfg.CPU, cpushare.Half()), a.Acceptor)
	a.Start()
	go func() {
		defer close(a.closed)
		a.Wait()
		a.tls.WaitHandshakes()
		for range maxEnrolling { // all places: then no connection is being enrolled
			a.enrolling <- struct{}{}
		}
	}()
	return a
}

// close stops listening. It waits, until ctx ends, until all accepted connections are
// enrolled, and those in the kernel's backlog too: their requests may have arrived.
func (a *acceptor) close(ctx context.Context) {
	a.stopOnce.Do(func() {
		a.Stop()
		a.tls.Stop()
	})
	select {
	case <-a.closed:
	case <-ctx.Done():
	}
}

// Fail implements listen.Handler: it counts and logs an error.
func (a *acceptor) Fail(what, address string, err error) {
	a.server.acceptErrors.Add(1)
	if suppressed, ok := a.errorLog.Admit(time.Now()); ok {
		a.server.cfg.Logger.Error(what, "listen", address, "error", err, "suppressed", suppressed)
	}
}

// Accept implements listen.Handler. It hands a connection to a loop. It closes it if there are MaxConnections, if it
// cannot be served, or if the server shuts down and its loops are busy.
func (a *acceptor) Accept(socket int, conn net.Conn) { a.admit(a.listeners[socket], conn) }

func (a *acceptor) admit(ln *listener, conn net.Conn) {
	if !a.server.reserveConn() {
		a.server.peers.connectionClosed(closedMaxConnections, conn.RemoteAddr(), nil)
		_ = conn.Close()
		return
	}
	if err := requesterror.Call(func() error { return a.admitCounted(ln, conn) }); err != nil {
		a.cannotServe(ln, err)
		_ = conn.Close()
	}
}

// cannotServe reports a connection that is counted and then not served.
func (a *acceptor) cannotServe(ln *listener, err error) {
	a.server.connections.Add(-1)
	a.Fail("cannot serve a connection", ln.Address, err)
}

// admitCounted is admit for a connection that is counted. It returns why that cannot be served, before the
// connection is closed.
func (a *acceptor) admitCounted(ln *listener, conn net.Conn) error {
	if ln.isTLS() {
		err := a.tls.Serve(conn.(*net.TCPConn), ln.Address, &tlsOwner{
			acceptor: a, pending: pendingConn{peer: conn.RemoteAddr(), listener: ln},
		})
		if errors.Is(err, tlspair.ErrStopping) {
			a.dropStopping(conn)
			return nil
		}
		return err
	}
	pending := &pendingConn{peer: conn.RemoteAddr(), listener: ln, settings: ln.settings.Load()}
	// enroll takes a second descriptor: without one gnet would close this connection and all later ones.
	a.AwaitDescriptor(ln.Address, conn)
	if !a.acquireEnrolling() {
		a.dropStopping(conn)
		return nil
	}
	enrolled := make(chan struct{})
	go func() {
		defer func() { <-a.enrolling; close(enrolled) }()
		if err := requesterror.Call(func() error { return a.enroll(conn, pending) }); err != nil {
			a.cannotServe(ln, err)
		}
	}()
	select {
	case <-enrolled:
	case <-time.After(enrollWait):
	}
	return nil
}

// dropStopping closes a connection that is counted, because the server shuts down.
func (a *acceptor) dropStopping(conn net.Conn) {
	a.server.connections.Add(-1)
	a.server.peers.connectionClosed(closedDraining, conn.RemoteAddr(), nil)
	_ = conn.Close()
}

// acquireEnrolling takes a place in enrolling. It returns false if there is none and close
// was called.
func (a *acceptor) acquireEnrolling() bool {
	select {
	case a.enrolling <- struct{}{}:
		return true
	default:
	}
	select {
	case a.enrolling <- struct{}{}:
		return true
	case <-a.Stopping():
		return false
	}
}

// reserveConn counts a connection, or returns false if there are MaxConnections.
func (s *shared) reserveConn() bool {
	for {
		n := s.connections.Load()
		if n >= int64(s.limits.Load().MaxConnections) {
			return false
		}
		if s.connections.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// enroll registers a connection with a loop. gnet duplicates its descriptor and closes the
// connection, in every case.
func (a *acceptor) enroll(conn net.Conn, p *pendingConn) error {
	clearZones(conn)
	if _, err := a.engine.EnrollContext(conn, p); err != nil {
		return err
	}
	if p.conn.Load() == nil { // gnet returns no error then
		return fmt.Errorf("%s was not taken by an event loop", p.peer)
	}
	return nil
}

// clearZones removes the zones of link-local addresses. At the end of a connection gnet
// would put the memory of their names into a pool, but it belongs to package net.
func clearZones(conn net.Conn) {
	for _, addr := range [...]net.Addr{conn.LocalAddr(), conn.RemoteAddr()} {
		if tcp, ok := addr.(*net.TCPAddr); ok {
			tcp.Zone = ""
		}
	}
}

// tlsOwner is what a TLS connection is for: it has a conn when its handshake has ended. It implements tlspair.Owner.
type tlsOwner struct {
	acceptor *acceptor
	pending  pendingConn
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
		return tlspair.ErrStopping
	}
	defer func() { <-o.acceptor.enrolling }()
	p := &o.pending
	p.tls, p.certificates = c, access.CertificatesOf(state, p.settings.TLS.ClientCAs)
	return o.acceptor.enroll(pair, p)
}

// Failed implements tlspair.Owner. A peer that reads nothing ends its conn.
func (o *tlsOwner) Failed(err error) {
	server, reason := o.acceptor.server, reasonOf(err)
	switch c := o.pending.conn.Load(); {
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

// pendingConn is a connection being handed to a loop, and its gnet context until OnOpen.
type pendingConn struct {
	peer         net.Addr
	listener     *listener
	settings     *Settings            // of the listener, when the connection was accepted
	certificates access.Certificates  // verified by these settings
	tls          *tlspair.Conn        // nil for a connection without TLS
	conn         atomic.Pointer[conn] // set by OnOpen, so OnClose will be called
}
