// Package cpushare bounds how many connections compute at a time. Those of HTTP, handshakes of TLS and sources of events so
// leave processors to the event loops: a goroutine for each connection would take all of them.
//
// A Share has a number of processors. The Claim of a connection holds one while the connection computes, and none while it
// waits for its peer. Claims that wait are served by Key in turn, and those of one key in order. So a peer with many
// connections delays another by one turn, not by one for each connection.
//
// Share.Bind does that for an http.Server. Sources of events and handshakes of TLS have claims of their own.
package cpushare

import (
	"container/list"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"time"
)

const (
	// maxTurn is how long a claim holds a processor before Yield gives it to others, as long as a turn of an event loop. A
	// connection that does not yield in the middle of something holds it for longer.
	maxTurn = 100 * time.Microsecond
	// maxWait bounds how long a claim waits for a processor. It is closed then, and so should its connection be.
	maxWait = 10 * time.Second
)

// Share is a number of processors. Safe for concurrent use.
type Share struct {
	mu     sync.Mutex
	free   int            // processors; 0 while a claim waits
	queues map[Key]*queue // of claims that wait; none is empty
	turns  list.List      // of *queue: all of them, the next first
}

// queue has the claims of one key that wait.
type queue struct {
	claims list.List // of *Claim, the next first
	turn   *list.Element
}

// New returns a share of n processors.
func New(n int) *Share { return &Share{free: n, queues: map[Key]*queue{}} }

// Half returns a share of half of the processors, at least one.
func Half() *Share { return New(max(1, runtime.GOMAXPROCS(0)/2)) }

// Key is whose turn it is.
type Key struct {
	Listener   string       // its name: a flood of one does not delay another
	Peer       netip.Prefix // an IPv4 address, or the 64 bits of an IPv6 address that a site has
	Credential string       // in place of Peer
}

// KeyOf returns the key of a peer without a credential.
func KeyOf(listener string, peer net.Addr) Key {
	tcp, ok := peer.(*net.TCPAddr)
	if !ok {
		return Key{Listener: listener}
	}
	address := tcp.AddrPort().Addr().Unmap().WithZone("")
	bits := 64
	if address.Is4() {
		bits = 32
	}
	prefix, _ := address.Prefix(bits) // fails for no address, which has no bits
	return Key{Listener: listener, Peer: prefix}
}

// Claim is what a connection has of a Share: a processor, or none. Its methods are safe for concurrent use. One goroutine
// computes for the connection. Others only read for it, see conn.
type Claim struct {
	share *Share

	// share.mu guards these.
	key          Key
	held, closed bool
	since        time.Time     // it has held a processor
	blocked      int           // calls of block without their unblock
	waiting      chan struct{} // closed at the end of the wait; nil: it does not wait
	place        *list.Element // in its queue, while it waits
}

// NewClaim returns a claim that holds nothing.
func (s *Share) NewClaim(key Key) *Claim { return &Claim{share: s, key: key} }

// setKey changes the key, from the next wait on.
func (c *Claim) setKey(key Key) {
	c.share.mu.Lock()
	defer c.share.mu.Unlock()
	if c.waiting == nil {
		c.key = key
	}
}

// Acquire waits for a processor. It does nothing if the claim holds one, or between block and unblock. It returns false
// if the claim is closed: also by Acquire, after maxWait.
func (c *Claim) Acquire() bool {
	s := c.share
	s.mu.Lock()
	switch {
	case c.closed:
		s.mu.Unlock()
		return false
	case c.held || c.blocked > 0:
		s.mu.Unlock()
		return true
	case c.waiting == nil && s.free > 0:
		s.free--
		c.begin()
		s.mu.Unlock()
		return true
	case c.waiting == nil:
		s.enqueue(c)
	}
	waiting := c.waiting
	s.mu.Unlock()
	return c.wait(waiting)
}

// wait waits until waiting is closed.
func (c *Claim) wait(waiting chan struct{}) bool {
	late := time.NewTimer(maxWait)
	defer late.Stop()
	select {
	case <-waiting:
	case <-late.C:
		c.Close()
	}
	c.share.mu.Lock()
	defer c.share.mu.Unlock()
	return !c.closed
}

// Release gives the processor to the next claim.
func (c *Claim) Release() {
	c.share.mu.Lock()
	defer c.share.mu.Unlock()
	c.release()
}

// Yield is Acquire, after Release if the turn is over.
func (c *Claim) Yield() bool {
	if !c.inTurn() {
		c.Release()
	}
	return c.Acquire()
}

// inTurn reports whether the claim holds a processor and may go on: its turn is not over, or no other claim waits.
func (c *Claim) inTurn() bool {
	c.share.mu.Lock()
	defer c.share.mu.Unlock()
	return c.held && (len(c.share.queues) == 0 || time.Since(c.since) < maxTurn)
}

// begin begins a turn. share.mu is held.
func (c *Claim) begin() { c.held, c.since = true, time.Now() }

// block releases the processor before the goroutine that computes waits for something. Until it calls unblock no other
// goroutine acquires one for the connection. Pairs of them may be nested.
func (c *Claim) block() {
	c.share.mu.Lock()
	defer c.share.mu.Unlock()
	c.blocked++
	c.giveUp()
}

// unblock ends a block. It acquires nothing.
func (c *Claim) unblock() {
	c.share.mu.Lock()
	defer c.share.mu.Unlock()
	c.blocked--
}

// Pause releases the processor before a wait until resume is called, which acquires one. Of no claim it does nothing.
func (c *Claim) Pause() (resume func()) {
	if c == nil {
		return func() {}
	}
	c.block()
	return func() {
		c.unblock()
		c.Acquire() // a closed claim ends the reply, or the next read
	}
}

// Close releases the processor, ends the wait for one, and makes later calls of Acquire return false.
func (c *Claim) Close() {
	c.share.mu.Lock()
	defer c.share.mu.Unlock()
	c.closed = true
	c.giveUp()
}

// giveUp releases the processor, or ends the wait for one. share.mu is held.
func (c *Claim) giveUp() {
	c.release()
	if c.waiting != nil {
		c.share.dequeue(c)
	}
}

// release gives the processor to the next claim. share.mu is held.
func (c *Claim) release() {
	if !c.held {
		return
	}
	c.held = false
	s := c.share
	first := s.turns.Front()
	if first == nil {
		s.free++
		return
	}
	s.turns.MoveToBack(first)
	next := first.Value.(*queue).claims.Front().Value.(*Claim)
	s.dequeue(next)
	next.begin()
}

// enqueue makes a claim wait. mu is held.
func (s *Share) enqueue(c *Claim) {
	q, ok := s.queues[c.key]
	if !ok {
		q = &queue{}
		q.turn = s.turns.PushBack(q)
		s.queues[c.key] = q
	}
	c.place, c.waiting = q.claims.PushBack(c), make(chan struct{})
}

// dequeue ends the wait of a claim. mu is held.
func (s *Share) dequeue(c *Claim) {
	q := s.queues[c.key]
	if q.claims.Remove(c.place); q.claims.Len() == 0 {
		s.turns.Remove(q.turn)
		delete(s.queues, c.key)
	}
	close(c.waiting)
	c.place, c.waiting = nil, nil
}
