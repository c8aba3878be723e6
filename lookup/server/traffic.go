package server

import (
	"sync"
	"time"

	"github.com/panjf2000/gnet/v2"
	"golang.org/x/sys/unix"

	"github.com/hitline/hitline/internal/requesterror"
	"github.com/hitline/hitline/lookup/internal/monotime"
)

// gnet gives each connection that has bytes one read of its loop's buffer, in turn. A turn that has
// little to do reads on. One that has much to do ends between two requests: the bytes that are left
// are kept, and served once the loop has served the others. So a peer delays others by its turns, and
// not by what it sends.
//
// gnet cannot stop reading from one connection, so a peer that sends more than it is served has more
// and more bytes kept: see keep.

const (
	// readBuffer is the size in bytes of a loop's read buffer: two lookups of 512 hashes.
	readBuffer = 32 << 10
	// readOnBuffer is how many bytes a turn reads at a time after its first read.
	readOnBuffer = 64 << 10
	// turnTime is how long a turn begins further requests, and readOnTime how long it reads on: what it
	// reads then is usually served within the turn.
	turnTime, readOnTime = 50 * time.Microsecond, 25 * time.Microsecond
	// requestsPerLook is how many requests are served before the clock is looked at.
	requestsPerLook = 8
	// requestsWithoutMemory is how many more a turn serves if there is no memory to keep them.
	requestsWithoutMemory = 64
)

// readBuffers holds the buffers of readOn.
var readBuffers = sync.Pool{New: func() any { return new([readOnBuffer]byte) }}

// serveTurn runs a turn: for what has arrived on c, or for what workers have completed if c is nil. A panic closes the
// connection.
func (s *Server) serveTurn(c gnet.Conn, ses *session) (err error) {
	defer requesterror.Recover(&err)
	if c != nil {
		return s.serveTraffic(c, ses)
	}
	ses.beginTurn()
	return ses.endTurn(ses.wake())
}

// serveTraffic serves the bytes that have arrived on a connection. If there are none, a Wake has
// caused the call.
func (s *Server) serveTraffic(c gnet.Conn, ses *session) error {
	p, err := c.Peek(-1)
	if err != nil {
		return nil //nolint:nilerr // the connection is closing
	}
	n := len(p)
	ses.beginTurn()
	if n == 0 {
		err = ses.wake()
	} else {
		ses.lastActive.Store(monotime.At(ses.turnStart))
		if err = ses.receive(p); err == nil {
			_, _ = c.Discard(n)
			err = ses.readOn(c.Fd(), n)
		}
	}
	return ses.endTurn(err)
}

// readOn reads on in the same turn, past gnet, after a read of n bytes that filled gnet's buffer. On
// an error or the end of the stream it returns nil: gnet's next read sees it again.
func (s *session) readOn(fd, n int) error {
	if n < readBuffer {
		return nil
	}
	buf := readBuffers.Get().(*[readOnBuffer]byte)
	defer readBuffers.Put(buf)
	for !s.isKeeping() && time.Since(s.turnStart) < readOnTime {
		size := s.nextRead()
		n, err := unix.Read(fd, buf[:size])
		if err != nil || n <= 0 {
			return nil
		}
		if err := s.receive(buf[:n]); err != nil || n < size {
			return err
		}
	}
	return nil
}

// nextRead returns how many bytes to read on: many of the hashes that are missing, but no fewer than gnet
// reads, since a read that is not filled is the last.
func (s *session) nextRead() int { return min(max(s.reader.BlobLeft(), readBuffer), readOnBuffer) }

// receive serves the next bytes of the connection. It returns an error if the connection must be
// closed. p is borrowed until it returns.
func (s *session) receive(p []byte) error {
	if !s.reader.InMessage() {
		s.adoptLimits()
	}
	if s.isKeeping() || len(p) == readBuffer && s.loop.isCrowded() {
		return s.keep(p)
	}
	n, err := s.feed(p)
	if err == nil && n < len(p) {
		err = s.keep(p[n:])
	}
	return err
}

// isTurnOver reports whether the turn is over.
func (s *session) isTurnOver() bool {
	return s.ended >= s.turnEnd && time.Since(s.turnStart) > turnTime
}

// feed reads bytes until they end, until the turn is over, or until a request after which others must
// wait. It returns how many it has read.
func (s *session) feed(p []byte) (n int, err error) {
	n, err = s.reader.Feed(p, s)
	if s.sendErr != nil {
		err = s.sendErr
	}
	return n, err
}

// isKeeping reports whether bytes that arrive are kept: because a request before them must end first,
// or because others are kept already.
func (s *session) isKeeping() bool { return s.mustKeep() || s.kept.size > 0 }

// mustKeep reports whether no request may be read before another has ended.
func (s *session) mustKeep() bool { return s.barrier != nil || !s.hasRoom() }

// keep keeps bytes for a later turn. A client that keeps to api.Limits never has more than a message and
// its share of requests here; one that has is closed.
func (s *session) keep(p []byte) error {
	s.kept.append(p)
	clear(p) // there may be a token in it
	s.keeping.Store(true)
	if int64(s.kept.size) > s.limits.Load().MaxMessage+maxInFlightBytes {
		return errInFlight
	}
	switch {
	case s.mustKeep():
		return nil
	case !s.hold(): // it is served rather than closed
		s.turnEnd = s.ended + requestsWithoutMemory
		return s.serveKept()
	}
	s.loop.push(s)
	return nil
}

// serveKept serves what was kept, until the turn is over: the event loop then serves others first.
func (s *session) serveKept() error {
	for s.kept.size > 0 && !s.mustKeep() {
		if s.isTurnOver() {
			s.loop.push(s)
			return nil
		}
		n, err := s.feed(s.kept.front())
		if err != nil {
			return err
		}
		s.kept.drop(n)
	}
	if s.kept.size == 0 && s.keeping.Load() {
		s.keeping.Store(false)
		s.lastActive.Store(monotime.Now()) // IdleTimeout begins now: the peer may have waited for longer
	}
	return nil
}

// wake serves what other goroutines have made ready: finished jobs, and new settings of the
// listener. It returns an error as receive does, also if the credential is gone.
func (s *session) wake() error {
	s.updateUnsent()
	if s.stillAuthorized() {
		s.finishJobs()
	}
	if s.sendErr != nil {
		return s.sendErr
	}
	return s.serveKept()
}
