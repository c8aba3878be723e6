package main

import (
	"errors"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"
)

// evictingListener returns at most maxConns open connections. If a further one arrives, it
// closes another: of those that wait for a request, the one that has waited for longest,
// and if none waits, the oldest. A connection younger than minConnAge is not closed, so that
// a client that sends its request at once is answered; meanwhile Accept waits.
//
// A limit that lets new connections wait, as netutil.LimitListener does, would give one peer
// that sends a byte a second the time of all timeouts together.
type evictingListener struct {
	net.Listener
	maxConns int

	mu     sync.Mutex
	closed bool
	conns  map[*evictableConn]struct{} // the open connections
}

// evictableConn is a connection of an evictingListener. The listener's mu guards its fields.
type evictableConn struct {
	net.Conn
	listener *evictingListener
	accepted time.Time
	// waiting is when the connection began to wait for a request. It is zero from the end
	// of a request's header until the reply is written.
	waiting time.Time
}

func newEvictingListener(l net.Listener, maxConns int) *evictingListener {
	return &evictingListener{Listener: l, maxConns: maxConns, conns: map[*evictableConn]struct{}{}}
}

// Accept returns the next connection.
func (l *evictingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.conns) >= l.maxConns && !l.closed {
		if victim := l.victim(); victim != nil {
			delete(l.conns, victim)
			_ = victim.Conn.Close()
			continue
		}
		l.mu.Unlock()
		time.Sleep(time.Millisecond) // until one is closed, or old enough
		l.mu.Lock()
	}
	if l.closed {
		_ = conn.Close()
		return nil, net.ErrClosed
	}
	now := time.Now()
	c := &evictableConn{Conn: conn, listener: l, accepted: now, waiting: now}
	l.conns[c] = struct{}{}
	return c, nil
}

// victim returns the connection to close, nil if all are too young.
func (l *evictingListener) victim() (victim *evictableConn) {
	for c := range l.conns {
		if time.Since(c.accepted) >= minConnAge && (victim == nil || c.before(victim)) {
			victim = c
		}
	}
	return victim
}

// before reports whether c is closed before o.
func (c *evictableConn) before(o *evictableConn) bool {
	if c.waiting.IsZero() || o.waiting.IsZero() {
		return !c.waiting.IsZero() || o.waiting.IsZero() && c.accepted.Before(o.accepted)
	}
	return c.waiting.Before(o.waiting)
}

// Close ends Accept, and closes the connections that wait for a request. Shutdown of an
// http.Server closes only those that have had one.
func (l *evictingListener) Close() error {
	err := l.Listener.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for c := range l.conns {
		if !c.waiting.IsZero() {
			_ = c.Conn.Close()
		}
	}
	return err
}

// Close frees the connection's place at the listener.
func (c *evictableConn) Close() error {
	c.listener.mu.Lock()
	delete(c.listener.conns, c)
	c.listener.mu.Unlock()
	return c.Conn.Close()
}

// SyscallConn implements syscall.Conn for a connection of the kernel's.
func (c *evictableConn) SyscallConn() (syscall.RawConn, error) {
	if socket, ok := c.Conn.(syscall.Conn); ok {
		return socket.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}

// CloseWrite ends the stream to the peer, so that a reply arrives before the connection is closed.
func (c *evictableConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// setConnState tells the listener of conn its state. It is the ConnState of an http.Server.
func setConnState(conn net.Conn, state http.ConnState) {
	c := conn.(*evictableConn)
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	switch state {
	case http.StateActive:
		c.waiting = time.Time{}
	case http.StateIdle:
		c.waiting = time.Now()
	}
}
