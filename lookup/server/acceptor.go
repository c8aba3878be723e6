package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/panjf2000/gnet/v2"
	"golang.org/x/sys/unix"

	"github.com/hitline/hitline/internal/cpushare"
	"github.com/hitline/hitline/internal/loglimit"
	"github.com/hitline/hitline/internal/requesterror"
	"github.com/hitline/hitline/lookup/access"
)

// acceptor accepts the connections of all listeners and hands them to the event loops.
//
// gnet's own server stops when it runs out of descriptors, and its listeners cannot be
// closed alone. So the engine is gnet's client, which has loops and no listeners.
type acceptor struct {
	server    *Server
	engine    *gnet.Client
	listeners []*listener
	closing   chan struct{} // closed by close
	closed    chan struct{} // closed when nothing is accepted any more and no connection is being enrolled
	enrolling chan struct{} // a place for each connection being handed to a loop
	tls       *tlsConns
	closeOnce sync.Once
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
	// backlogTimeout bounds how long shutdown keeps accepting connections that were already in
	// the backlog.
	backlogTimeout = time.Second
)

// pendingConn is a connection being handed to a loop, and its gnet context until OnOpen.
type pendingConn struct {
	peer         net.Addr
	listener     *listener
	settings     *Settings           // of the listener, when the connection was accepted
	certificates access.Certificates // verified by these settings
	tls          *tlsConn            // nil for a connection without TLS
	opened       atomic.Bool         // OnOpen was called, so OnClose will be
}

// startAcceptor starts one goroutine for each listener.
func startAcceptor(s *Server, engine *gnet.Client, listeners []*listener) *acceptor {
	a := &acceptor{
		server: s, engine: engine, listeners: listeners,
		closing: make(chan struct{}), closed: make(chan struct{}), enrolling: make(chan struct{}, maxEnrolling),
		tls: newTLSConns(cmp.Or(s.cfg.CPU, cpushare.Half())),
	}
	var acceptors sync.WaitGroup
	for _, ln := range listeners {
		acceptors.Go(func() { a.accept(ln) })
	}
	go func() {
		defer close(a.closed)
		acceptors.Wait()
		a.tls.handshakes.Wait()
		for range maxEnrolling { // all places: then no connection is being enrolled
			a.enrolling <- struct{}{}
		}
	}()
	return a
}

// close stops listening. It waits, until ctx ends, until all accepted connections are
// enrolled, and those in the kernel's backlog too: their requests may have arrived.
func (a *acceptor) close(ctx context.Context) {
	a.closeOnce.Do(func() {
		for _, ln := range a.listeners {
			ln.interrupt()
		}
		close(a.closing)
		a.tls.drain()
	})
	select {
	case <-a.closed:
	case <-ctx.Done():
	}
}

// accept accepts connections until close, then closes the listener. Without descriptors or
// memory it backs off, and connections wait in the backlog.
func (a *acceptor) accept(ln *listener) {
	defer func() { _ = ln.Close() }()
	backoff := minBackoff
	for {
		conn, err := ln.Accept()
		switch {
		case err == nil:
			backoff = minBackoff
			a.admit(ln, conn)
			continue
		case errors.Is(err, net.ErrClosed):
			return
		case errors.Is(err, os.ErrDeadlineExceeded): // set by interrupt
			<-a.closing
			ln.unlink() // first, so that no further connection finds the socket
			a.acceptBacklog(ln)
			return
		}
		a.reportError("cannot accept connections", ln.addr, err)
		a.pause(backoff)
		backoff = min(2*backoff, maxBackoff)
	}
}

// The backoff while there are no descriptors.
const minBackoff, maxBackoff = 5 * time.Millisecond, time.Second

// pause waits for d. It returns false if close is called before.
func (a *acceptor) pause(d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-a.closing:
		return false
	}
}

// aLongTimeAgo, set as a deadline, interrupts Accept at once.
var aLongTimeAgo = time.Unix(1, 0)

// interrupt makes Accept return.
func (l *listener) interrupt() { _ = l.SetDeadline(aLongTimeAgo) } // fails if it is closed

// acceptBacklog accepts the connections in the backlog.
func (a *acceptor) acceptBacklog(ln *listener) {
	if ln.SetDeadline(time.Now().Add(backlogTimeout)) != nil {
		return
	}
	for hasPending(ln) {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		a.admit(ln, conn)
	}
}

// hasPending reports whether a listener has a connection to accept.
func hasPending(ln *listener) bool {
	raw, err := ln.SyscallConn()
	if err != nil {
		return false
	}
	pending := false
	_ = raw.Control(func(fd uintptr) {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		pending = err == nil && n > 0
	})
	return pending
}

// reportError counts and logs an error that keeps connections from being accepted.
func (a *acceptor) reportError(what, addr string, err error) {
	a.server.acceptErrors.Add(1)
	if suppressed, ok := a.errorLog.Admit(time.Now()); ok {
		a.server.cfg.Logger.Error(what, "listen", addr, "error", err, "suppressed", suppressed)
	}
}

// admit hands a connection to a loop. It closes it if there are MaxConnections, if it cannot be served, or if
// the server drains and its loops are busy.
func (a *acceptor) admit(ln *listener, conn net.Conn) {
	if !a.server.reserveConn() {
		a.server.closed[closedMaxConnections].Add(1)
		a.server.peers.connectionClosed(closedMaxConnections, conn.RemoteAddr(), nil)
		_ = conn.Close()
		return
	}
	if err := requesterror.Call(func() error { return a.admitCounted(ln, conn) }); err != nil {
		a.cannotServe(conn, err)
		_ = conn.Close()
	}
}

// cannotServe reports a connection that is counted and then not served.
func (a *acceptor) cannotServe(conn net.Conn, err error) {
	a.server.connections.Add(-1)
	a.reportError("cannot serve a connection", conn.LocalAddr().String(), err)
}

// admitCounted is admit for a connection that is counted. It returns why that cannot be served, before the
// connection is closed.
func (a *acceptor) admitCounted(ln *listener, conn net.Conn) error {
	unmapPeer(conn)
	if ln.isTLS() {
		return a.admitTLS(ln, conn.(*net.TCPConn))
	}
	pending := &pendingConn{peer: conn.RemoteAddr(), listener: ln, settings: ln.settings.Load()}
	// enroll takes a second descriptor: without one gnet would close this connection and all later ones.
	_ = a.withDescriptors(conn, time.Time{}, func() error { return tryDescriptor(conn) }) // enroll returns other errors
	if !a.acquireEnrolling() {
		a.dropDraining(conn)
		return nil
	}
	enrolled := make(chan struct{})
	go func() {
		defer func() { <-a.enrolling; close(enrolled) }()
		if err := requesterror.Call(func() error { return a.enroll(conn, pending) }); err != nil {
			a.cannotServe(conn, err)
		}
	}()
	select {
	case <-enrolled:
	case <-time.After(enrollWait):
	}
	return nil
}

// dropDraining closes a connection that is counted, because the server drains.
func (a *acceptor) dropDraining(conn net.Conn) {
	a.server.connections.Add(-1)
	a.server.closed[closedDraining].Add(1)
	_ = conn.Close()
}

// withDescriptors calls f for a connection, again with a backoff while there are no descriptors for it:
// until end if that is not zero, or until close. It returns the last error of f.
func (a *acceptor) withDescriptors(conn net.Conn, end time.Time, f func() error) error {
	for backoff := minBackoff; ; backoff = min(2*backoff, maxBackoff) {
		err := f()
		if !errors.Is(err, unix.EMFILE) && !errors.Is(err, unix.ENFILE) || !end.IsZero() && time.Now().After(end) {
			return err
		}
		a.reportError("cannot serve a connection", conn.LocalAddr().String(), err)
		if !a.pause(backoff) {
			return err
		}
	}
}

// tryDescriptor duplicates the descriptor of a connection and closes the duplicate.
func tryDescriptor(conn net.Conn) error {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		var second int
		if second, failed = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0); failed == nil {
			_ = unix.Close(second)
		}
	})
	return errors.Join(err, failed)
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
	case <-a.closing:
		return false
	}
}

// reserveConn counts a connection, or returns false if there are MaxConnections.
func (s *Server) reserveConn() bool {
	for {
		n := s.connections.Load()
		if n >= int64(s.limits.MaxConnections) {
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
	if !p.opened.Load() { // gnet returns no error then
		return fmt.Errorf("%s was not taken by an event loop", p.peer)
	}
	return nil
}

// unmapPeer makes the address of an IPv4 peer of a listener for both families the same as of one for IPv4.
func unmapPeer(conn net.Conn) {
	if tcp, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
		if ip := tcp.IP.To4(); ip != nil {
			tcp.IP = ip
		}
	}
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
