package server

import (
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
)

// acceptor accepts the connections of all listeners and hands them to the event loops.
//
// gnet could accept by itself, but an engine of its that runs out of descriptors
// stops, and stopping it is the only way to close its listeners. So the engine is
// gnet's client, which has loops and nothing else.
type acceptor struct {
	server    *Server
	engine    *gnet.Client
	listeners []listener
	closing   chan struct{}
	closed    chan struct{} // accepting is over, and every accepted connection has its loop
	enrolling chan struct{} // a token for each connection being handed to a loop
	once      sync.Once
	errorLog  logLimit
}

const (
	// maxEnrolling bounds the connections being handed to a loop; each takes a second
	// descriptor meanwhile.
	maxEnrolling = 32
	// enrollWait is how long the next connection waits for the one before it to have its
	// loop. The loop with the fewest connections is chosen, so this keeps them even; loops
	// that are busy for longer are not waited for.
	enrollWait = time.Millisecond
	// lastCall bounds how long shutdown keeps accepting connections that were already in
	// the backlog.
	lastCall = time.Second
)

// pendingConn is a connection being handed to a loop, and its gnet context until OnOpen.
type pendingConn struct {
	peer   net.Addr
	opened atomic.Bool // OnOpen has seen it, and OnClose will
}

func startAcceptor(s *Server, engine *gnet.Client, listeners []listener) *acceptor {
	a := &acceptor{
		server: s, engine: engine, listeners: listeners,
		closing: make(chan struct{}), closed: make(chan struct{}), enrolling: make(chan struct{}, maxEnrolling),
	}
	var acceptors sync.WaitGroup
	for _, ln := range listeners {
		acceptors.Go(func() { a.accept(ln) })
	}
	go func() {
		defer close(a.closed)
		acceptors.Wait()
		for range maxEnrolling { // all tokens: none is left
			a.enrolling <- struct{}{}
		}
	}()
	return a
}

// close stops listening and waits, until ctx ends, for the connections that came before,
// also those in the kernel's backlog: their requests may have arrived.
func (a *acceptor) close(ctx context.Context) {
	a.once.Do(func() {
		for _, ln := range a.listeners {
			ln.interrupt()
		}
		close(a.closing)
	})
	select {
	case <-a.closed:
	case <-ctx.Done():
	}
}

// accept takes connections until close, and closes the listener. Without descriptors or
// memory it waits, and connections that come meanwhile wait in the backlog.
func (a *acceptor) accept(ln listener) {
	defer func() { _ = ln.Close() }()
	pause := minRetry
	for {
		conn, err := ln.Accept()
		switch {
		case err == nil:
			pause = minRetry
			a.admit(conn)
			continue
		case errors.Is(err, net.ErrClosed):
			return
		case errors.Is(err, os.ErrDeadlineExceeded): // by interrupt
			<-a.closing
			ln.unlink() // first: later connections find no socket
			a.acceptLast(ln)
			return
		}
		a.reportError("cannot accept connections", ln.addr, err)
		a.sleep(pause)
		pause = min(2*pause, maxRetry)
	}
}

// Pauses between attempts while there are no descriptors.
const minRetry, maxRetry = 5 * time.Millisecond, time.Second

// sleep waits, and returns false if close is called meanwhile.
func (a *acceptor) sleep(pause time.Duration) bool {
	select {
	case <-time.After(pause):
		return true
	case <-a.closing:
		return false
	}
}

// deadlineListener is what the listeners of package net have beside net.Listener.
type deadlineListener interface {
	SetDeadline(t time.Time) error
	syscall.Conn
}

// longAgo as a deadline wakes Accept at once.
var longAgo = time.Unix(1, 0)

// interrupt makes Accept return, by a deadline if the listener takes one.
func (l listener) interrupt() {
	if p, ok := l.Listener.(deadlineListener); !ok || p.SetDeadline(longAgo) != nil {
		_ = l.Close()
	}
}

// acceptLast takes the connections in the backlog.
func (a *acceptor) acceptLast(ln listener) {
	p := ln.Listener.(deadlineListener)
	if p.SetDeadline(time.Now().Add(lastCall)) != nil {
		return
	}
	for hasPending(p) {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		a.admit(conn)
	}
}

// hasPending tells whether a listener has a connection to accept.
func hasPending(p deadlineListener) bool {
	raw, err := p.SyscallConn()
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
	if suppressed, ok := a.errorLog.allow(a.server.peers.now()); ok {
		a.server.cfg.Logger.Error(what, "listen", addr, "error", err, "not_told", suppressed)
	}
}

// admit hands a connection to a loop, or closes it if there are too many.
func (a *acceptor) admit(conn net.Conn) {
	if !a.server.reserveConn() {
		a.server.closed[closedMaxConnections].Add(1)
		a.server.peers.connectionClosed(closedMaxConnections, peerOf(conn), nil)
		_ = conn.Close()
		return
	}
	a.awaitDescriptor(conn)
	if !a.acquireToken() {
		a.server.connections.Add(-1)
		a.server.closed[closedDraining].Add(1)
		_ = conn.Close()
		return
	}
	enrolled := make(chan struct{})
	go func() {
		defer func() { <-a.enrolling; close(enrolled) }()
		if err := a.enroll(conn); err != nil {
			a.server.connections.Add(-1)
			a.reportError("cannot serve a connection", conn.LocalAddr().String(), err)
		}
	}()
	select {
	case <-enrolled:
	case <-time.After(enrollWait):
	}
}

// awaitDescriptor returns when there is a second descriptor, which a connection takes while
// it is enrolled, or when close is called. Without one gnet would close the connection and
// all that come after it.
func (a *acceptor) awaitDescriptor(conn net.Conn) {
	for pause := minRetry; ; pause = min(2*pause, maxRetry) {
		err := tryDescriptor(conn)
		if !errors.Is(err, unix.EMFILE) && !errors.Is(err, unix.ENFILE) {
			return // enroll meets other errors
		}
		a.reportError("cannot serve a connection", conn.LocalAddr().String(), err)
		if !a.sleep(pause) {
			return
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

// acquireToken takes a token of enrolling. It returns false if there is none and the server
// drains: its loops are too busy for another connection.
func (a *acceptor) acquireToken() bool {
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

// reserveConn counts a connection unless there are MaxConnections.
func (s *Server) reserveConn() bool {
	for {
		n := s.connections.Load()
		if n >= int64(s.cfg.Limits.MaxConnections) {
			return false
		}
		if s.connections.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// enroll registers a connection with a loop. gnet duplicates its descriptor and closes the
// connection, in every case.
func (a *acceptor) enroll(conn net.Conn) error {
	p := &pendingConn{peer: peerOf(conn)}
	clearZones(conn)
	if _, err := a.engine.EnrollContext(conn, p); err != nil {
		return err
	}
	if !p.opened.Load() { // gnet does not say why
		return fmt.Errorf("%s was not taken by an event loop", p.peer)
	}
	return nil
}

// clearZones drops the zones of link-local addresses: at the end of a connection
// gnet puts the memory of their names into a pool, and it belongs to package net.
func clearZones(conn net.Conn) {
	for _, addr := range [...]net.Addr{conn.LocalAddr(), conn.RemoteAddr()} {
		if tcp, ok := addr.(*net.TCPAddr); ok {
			tcp.Zone = ""
		}
	}
}
