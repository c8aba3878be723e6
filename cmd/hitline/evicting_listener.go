package main

import (
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// evictionLogInterval is the minimum time between two lines about evicted connections.
const evictionLogInterval = 10 * time.Second

// evictingListener returns at most max open connections. If a further one arrives, it
// closes another: of those that wait for a request, the one that has waited for longest,
// and if none waits, the oldest. A connection younger than minAge is not closed, so that
// a client that sends its request at once is answered; meanwhile Accept waits.
type evictingListener struct {
	net.Listener
	max     int
	minAge  time.Duration
	log     *slog.Logger
	freed   chan struct{} // has an element after a connection was closed
	evicted int           // connections closed by Accept since it has logged that
	logged  time.Time     // when it has logged that

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

func newEvictingListener(l net.Listener, max int, minAge time.Duration, log *slog.Logger) *evictingListener {
	return &evictingListener{
		Listener: l, max: max, minAge: minAge, log: log,
		freed: make(chan struct{}, 1), conns: map[*evictableConn]struct{}{},
	}
}

// Accept returns the next connection. It is called by one goroutine at a time.
func (l *evictingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &evictableConn{Conn: conn, listener: l}
	for {
		victim, wait, err := l.add(c)
		switch {
		case err != nil:
			_ = conn.Close()
			return nil, err
		case victim != nil:
			_ = victim.Conn.Close()
			l.logEviction()
		case wait == 0:
			return c, nil
		default:
			select {
			case <-time.After(wait):
			case <-l.freed:
			}
		}
	}
}

// add adds c, and removes another connection if there are max: the caller closes victim.
// If none may be removed, add does nothing and returns the time until one may be.
func (l *evictingListener) add(c *evictableConn) (victim *evictableConn, wait time.Duration, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	switch {
	case l.closed:
		return nil, 0, net.ErrClosed
	case len(l.conns) < l.max:
		c.accepted, c.waiting = now, now
		l.conns[c] = struct{}{}
		return nil, 0, nil
	}
	wait = l.minAge
	for o := range l.conns {
		if age := now.Sub(o.accepted); age < l.minAge {
			wait = min(wait, l.minAge-age)
		} else if victim == nil || o.before(victim) {
			victim = o
		}
	}
	if victim == nil {
		return nil, wait, nil
	}
	delete(l.conns, victim)
	return victim, 0, nil
}

// logEviction logs an eviction, at most once every evictionLogInterval.
func (l *evictingListener) logEviction() {
	l.evicted++
	if now := time.Now(); l.logged.IsZero() || now.Sub(l.logged) >= evictionLogInterval {
		l.log.Warn("HTTP connections closed in favour of new ones", "connections", l.evicted, "limit", l.max)
		l.evicted, l.logged = 0, now
	}
}

// before reports whether c is closed before o.
func (c *evictableConn) before(o *evictableConn) bool {
	if c.waiting.IsZero() || o.waiting.IsZero() {
		return !c.waiting.IsZero() || o.waiting.IsZero() && c.accepted.Before(o.accepted)
	}
	return c.waiting.Before(o.waiting)
}

// Close ends Accept, within minAge, and closes the connections that wait for a request.
// Shutdown of an http.Server closes only those that have had one.
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
	l := c.listener
	l.mu.Lock()
	delete(l.conns, c)
	l.mu.Unlock()
	err := c.Conn.Close()
	select {
	case l.freed <- struct{}{}:
	default:
	}
	return err
}

// setConnState tells the listener of conn its state. It is the ConnState of an http.Server.
func setConnState(conn net.Conn, state http.ConnState) {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	c, ok := conn.(*evictableConn)
	if !ok {
		return
	}
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	switch state {
	case http.StateActive:
		c.waiting = time.Time{}
	case http.StateIdle:
		c.waiting = time.Now()
	}
}
