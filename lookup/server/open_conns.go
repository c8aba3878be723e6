package server

import (
	"sync"

	"github.com/hitline/hitline/lookup/server/internal/held"
)

// openConns are the open connections of a server. Safe for concurrent use.
//
// gnet closes a descriptor after its event loop has removed the connection. So who holds mu may use the descriptors of
// all, and conn.wire.
type openConns struct {
	mu      sync.Mutex
	all     map[*conn]struct{}
	emptied chan struct{} // capacity 1: gets a token when the last connection has ended
}

func (o *openConns) add(c *conn) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all[c] = struct{}{}
}

func (o *openConns) remove(c *conn) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.all, c)
}

// tellEmptied tells Server.closeConns if there is no connection any more.
func (o *openConns) tellEmptied() {
	if o.number() > 0 {
		return
	}
	select {
	case o.emptied <- struct{}{}:
	default:
	}
}

func (o *openConns) number() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.all)
}

// each calls f for all connections, with mu held.
func (o *openConns) each(f func(c *conn)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for c := range o.all {
		f(c)
	}
}

// count returns how many connections f reports.
func (o *openConns) count(f func(c *conn) bool) (n int) {
	o.each(func(c *conn) {
		if f(c) {
			n++
		}
	})
	return n
}

// wake gives the connections that f reports a turn, so that they look at what has changed.
func (o *openConns) wake(f func(c *conn) bool) {
	o.each(func(c *conn) {
		if f(c) {
			_ = c.wire.Wake(nil) // it fails if the connection is being closed
		}
	})
}

// evictLate closes connections if over bytes of memory are to be freed: see held.EvictLate.
func (o *openConns) evictLate(over int64) {
	if over <= 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	all := make([]held.Evictable, 0, len(o.all))
	for c := range o.all {
		all = append(all, evictableConn{c})
	}
	held.EvictLate(over, all)
}
