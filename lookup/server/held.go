package server

import (
	"time"

	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/internal/monotime"
)

// What a connection holds is charged to the admission: replies that the peer has not read, bytes that wait for a turn,
// unfinished requests and jobs. A request for which there is no memory is refused before any work is done for it. A
// connection that holds more without a request is closed, by its own event loop: who pays is who holds.

// admissionBounds returns what bounds the bytes that connections hold, for all and for each: three quarters of the
// account, as garbage takes as much again before it is collected, or five sixteenths of it if the keys of a store are
// charged to the same one (RemoteConfig.Memory). Half of them, over a store at most RemoteConfig.MaxBytes, is for all.
// What is left is divided among as many connections as there may be: so each may hold some, whatever others do.
func admissionBounds(memory *lookup.MemoryAccount, backend *lookup.SharedBackend, maxConnections int) (common, share int64) {
	_, held, _ := memory.Usage()
	if held <= 0 {
		held = DefaultLimits().MaxMemory
	}
	if backend != nil && backend.Config().Memory == memory {
		held = held * 5 / 16
	} else {
		held = held * 3 / 4
	}
	common = held / 2
	if backend != nil {
		common = min(common, backend.Config().MaxBytes)
	}
	return common, (held - common) / int64(maxConnections)
}

// charge charges what the connection holds now. It returns false, and charges what it did before, if that is more than
// it may hold.
func (c *conn) charge() bool {
	requests := c.protocol.pending()
	held, before := c.bytesHeld(requests), c.held.Bytes()
	if held == before {
		return true
	}
	if !c.loop.admission.Set(&c.held, held, int64(c.kept.Held()+requests.small), requests.waits) {
		return false
	}
	c.loop.metrics.held.Add(held - before)
	return true
}

// bytesHeld returns the bytes of memory that the connection holds, with its requests.
func (c *conn) bytesHeld(requests pending) int64 {
	return c.unsent.bytes.Load() + int64(c.reader.Held()+c.kept.Held()+requests.bytes)
}

// chargeOnly charges a connection that is closed for requests alone, which are no more than before. One goroutine at a
// time calls it.
func (c *conn) chargeOnly(bytes int) {
	c.loop.metrics.held.Add(int64(bytes) - c.held.Bytes())
	c.loop.admission.Set(&c.held, int64(bytes), 0, true)
}

// updateHeld charges what the connection holds at the end of a turn. If it may not, the request that arrives is
// refused. If there is none it returns errHoldsTooMuch.
func (c *conn) updateHeld() error {
	if c.charge() {
		return nil
	}
	c.protocol.refuse(errNoMemory)
	if c.charge() {
		return nil
	}
	c.loop.memoryAccount.Refuse()
	return errHoldsTooMuch
}

// fits reports whether the connection may hold so many more bytes.
func (c *conn) fits(bytes int) bool {
	return c.loop.admission.Fits(&c.held, c.bytesHeld(c.protocol.pending())+int64(bytes))
}

// evictableConn is a connection as held.EvictLate sees it.
type evictableConn struct{ *conn }

// Admitted implements held.Evictable.
func (c evictableConn) Admitted() int64 { return c.loop.admission.Admitted(&c.held) }

// IsEnding implements held.Evictable.
func (c evictableConn) IsEnding() bool { return c.isEnding() }

// IsLate implements held.Evictable: the peer has left a request unfinished or replies unread for a second.
func (c evictableConn) IsLate() bool {
	isLate := func(since int64) bool { return since != 0 && monotime.Now()-since > int64(time.Second) }
	return isLate(c.times.messageSince.Load()) || isLate(c.unsent.since.Load())
}

// Evict implements held.Evictable. openConns.mu is held.
func (c evictableConn) Evict() {
	if c.end(closedMemory) {
		c.loop.memoryAccount.Refuse()
		_ = c.wire.Close() // its event loop frees the memory
	}
}
