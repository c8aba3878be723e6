package server

import (
	"cmp"
	"slices"
	"time"

	"github.com/hitline/hitline/lookup/internal/monotime"
)

// What a connection holds is charged to the admission: replies that the peer has not read, bytes that wait for a turn,
// unfinished requests and jobs. A request for which there is no memory is refused before any work is done for it. A
// connection that holds more without a request is closed, by its own event loop: who pays is who holds.

// holding is what the requests of a connection hold.
type holding struct {
	bytes int
	small int  // of them, that others cannot keep out: see admission.Admission
	waits bool // requests have begun to be served, so that what waits is served later
}

// hold charges what the connection holds now. It returns false, and charges what it did before, if that is more than it may
// hold.
func (c *conn) hold() bool {
	requests := c.protocol.holds()
	held, before := c.bytesHeld(requests), c.held.Bytes()
	if held == before {
		return true
	}
	if !c.loop.admission.Set(&c.held, held, int64(c.kept.held()+requests.small), requests.waits) {
		return false
	}
	c.loop.metrics.held.Add(held - before)
	return true
}

// bytesHeld returns the bytes of memory that the connection holds, with its requests.
func (c *conn) bytesHeld(requests holding) int64 {
	return c.unsent.bytes.Load() + int64(c.reader.Held()+c.kept.held()+requests.bytes)
}

// holdOnly charges a connection that is closed for requests alone, which are no more than before. One goroutine at a time
// calls it.
func (c *conn) holdOnly(bytes int) {
	c.loop.metrics.held.Add(int64(bytes) - c.held.Bytes())
	c.loop.admission.Set(&c.held, int64(bytes), 0, true)
}

// updateHeld charges what the connection holds at the end of a turn. If it may not, the request that arrives is refused.
// If there is none it returns errMemory.
func (c *conn) updateHeld() error {
	if c.hold() {
		return nil
	}
	c.protocol.refuse(errNoMemory)
	if c.hold() {
		return nil
	}
	c.loop.memory.Refuse()
	return errMemory
}

// fits reports whether the connection may hold so many more bytes.
func (c *conn) fits(bytes int) bool {
	return c.loop.admission.Fits(&c.held, c.bytesHeld(c.protocol.holds())+int64(bytes))
}

// holder is who holds memory that others need. Any goroutine may call its methods.
type holder interface {
	// admitted returns what it holds beyond its own share.
	admitted() int64
	// isEnding reports whether its memory is free soon.
	isEnding() bool
	// isLate reports whether it makes no progress by its own fault.
	isLate() bool
	// evict makes its memory free soon.
	evict()
}

// evictLate makes over bytes free, if it can: those of who is late, beginning with who holds most.
func evictLate(over int64, all []holder) {
	type late struct {
		holder
		bytes int64 // which change meanwhile
	}
	var found []late
	for _, h := range all {
		switch bytes := h.admitted(); {
		case h.isEnding():
			over -= bytes
		case bytes > 0 && h.isLate():
			found = append(found, late{h, bytes})
		}
	}
	slices.SortFunc(found, func(a, b late) int { return cmp.Compare(b.bytes, a.bytes) })
	for _, h := range found {
		if over <= 0 {
			return
		}
		over -= h.bytes
		h.evict()
	}
}

// admitted implements holder.
func (c *conn) admitted() int64 { return c.loop.admission.Admitted(&c.held) }

// isLate implements holder: the peer has left a request unfinished or replies unread for a second.
func (c *conn) isLate() bool {
	isLate := func(since int64) bool { return since != 0 && monotime.Now()-since > int64(time.Second) }
	return isLate(c.times.messageSince.Load()) || isLate(c.unsent.since.Load())
}

// evict implements holder. openConns.mu is held.
func (c *conn) evict() {
	if c.end(closedMemory) {
		c.loop.memory.Refuse()
		_ = c.wire.Close() // its event loop frees the memory
	}
}
