package server

import (
	"context"
	"log/slog"
	"time"

	"github.com/hitline/hitline/lookup/internal/monotime"
	"github.com/hitline/hitline/netproto"
)

// A turn of a connection ends when its bytes are served or its share of work is spent, in the
// middle of a request too. What is left waits in the session's backlog for the next turn, behind
// the other connections of the event loop. So a peer delays others by its turns and not by what
// it sends.
//
// Work is counted, not timed: a unit is about the cost of comparing one hash, 2 to 3
// nanoseconds on a current processor.

const (
	// turnShare is the work of a turn: 50 to 100 microseconds. A lookup of 64 hashes takes
	// 400 to 500 units, so turns of usual requests end with their bytes.
	turnShare = 1 << 15
	// bytesPerUnit is how many bytes are received, or written into a reply, at the cost of a
	// unit.
	bytesPerUnit = 8
	// requestWork is the work of a request, beside that of its hashes and its reply.
	requestWork = 100
	// refusalWork is the work of refusing a request: the error is formatted and counted.
	refusalWork = 400
	// loggedRefusalWork is refusalWork if each refusal is logged.
	loggedRefusalWork = 3000
)

// workOf returns the work of a request that does not depend on its hashes.
func workOf(tag netproto.Tag) int {
	switch tag {
	case netproto.TagStat:
		return 20_000 // all counters in JSON: some 40 microseconds
	case netproto.TagReset:
		return 10_000 // a new table: some 20 microseconds
	case netproto.TagExplain:
		return 2000 // JSON
	case netproto.TagPool:
		// The rules of a pool: 100 microseconds, some milliseconds for thousands of ranks. It is
		// served in a turn from the queue, so that others are served between any two.
		return turnShare
	}
	return requestWork
}

// refusalWorkOf returns the work of refusing a request, given where that is logged.
func refusalWorkOf(log *slog.Logger) int {
	if log.Enabled(context.Background(), slog.LevelDebug) {
		return loggedRefusalWork
	}
	return refusalWork
}

// beginTurn begins a turn with a full share.
func (s *session) beginTurn() { s.turnStart, s.workLeft = time.Now(), turnShare }

// maxBacklog bounds the bytes of a backlog that are not served. One read is at most readBuffer,
// and then reading is paused. gnet resumes it when the kernel has accepted all replies, which may
// bring another read: so only a peer that lets its replies wait, again and again, has a longer
// one. It is closed as a slow reader. Where reading cannot be paused, the backlog is served at
// once.
const maxBacklog = 16 * readBuffer

// beginBacklog keeps rest, the bytes that the turn has left, for the next turn, and pauses the
// reading of further ones. rest may be empty: then only a request is left to end.
func (s *session) beginBacklog(rest []byte) error {
	s.array, s.served = readBuffers.Get().(*[readBuffer]byte), 0
	s.backlog = s.array[:0]
	s.waiting.Store(true)
	s.metrics.turnsCut.Add(1)
	return s.addBacklog(rest)
}

// addBacklog adds bytes to the backlog and queues the session for its next turn. If it cannot be
// queued, or the backlog is too long, it serves all of the backlog now or returns an error.
func (s *session) addBacklog(p []byte) error {
	if s.served > 0 {
		s.backlog = s.backlog[:copy(s.backlog, s.backlog[s.served:])]
		s.served = 0
	}
	s.backlog = append(s.backlog, p...) // beyond readBuffer bytes it is not in array any more
	s.updateHeld()
	s.reading.pause()
	switch long := len(s.backlog) > maxBacklog; {
	case long && s.reading != nil:
		s.reading.restore()
		return errSlowReader
	case !long && s.queue != nil:
		s.queue.push(s)
		return nil
	}
	for s.waiting.Load() {
		if err := s.takeTurn(); err != nil {
			return err
		}
	}
	return nil
}

// takeTurn serves the backlog for one turn. It returns an error if the connection must be
// closed. Otherwise waiting says whether there is more to do.
func (s *session) takeTurn() error {
	s.beginTurn()
	s.reading.restore()
	n, err := s.feed(s.backlog[s.served:])
	if s.served += n; err != nil {
		s.dropBacklog()
		return err
	}
	if s.served < len(s.backlog) || s.ending {
		s.reading.pause()
		return nil
	}
	s.lastActive.Store(monotime.Now()) // IdleTimeout begins now: the peer may have waited for longer
	s.dropBacklog()
	s.updateHeld()
	s.reading.resume()
	return nil
}

// dropBacklog releases the backlog.
func (s *session) dropBacklog() {
	s.waiting.Store(false)
	if s.array != nil {
		readBuffers.Put(s.array)
		s.array, s.backlog = nil, nil
	}
}
