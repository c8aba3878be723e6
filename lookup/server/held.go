package server

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/hitline/hitline/internal/admission"
	"github.com/hitline/hitline/lookup/internal/monotime"
	"github.com/hitline/hitline/lookup/server/internal/sockets"
)

// What a connection holds is charged to Server.admission: replies that the peer has not read, bytes that wait for a turn,
// unfinished requests and jobs. A request for which there is no memory is refused before any work is done for it. A
// connection that holds more without a request is closed, by its own event loop: who pays is who holds.

// hold charges what the connection holds now. It returns false, and charges what it did before, if that is more than it may
// hold.
func (s *session) hold() bool {
	held, before := s.bytesHeld(), s.held.Bytes()
	if held == before {
		return true
	}
	kept := s.kept.held()
	if j := s.jobs.waiting; j != nil && j.isSmall() {
		kept += j.bytes
	} else if s.inFlight.Load() == 1 && s.unsent.Load() == 0 && s.jobs.bytes <= admission.SmallBytes {
		kept += s.jobs.bytes // replies that others do not read leave room for the only request of a peer
	}
	if !s.server.admission.Set(&s.held, held, int64(kept), s.jobs.running > 0) {
		return false
	}
	s.metrics.held.Add(held - before)
	return true
}

// bytesHeld returns the bytes of memory that the connection holds.
func (s *session) bytesHeld() int64 {
	return s.unsent.Load() + int64(s.reader.Held()+s.ask.Bytes()+s.inline.held()+s.jobs.held()+s.kept.held())
}

// updateHeld charges what the connection holds at the end of a turn. If it may not, the request that arrives is refused.
// If there is none it returns errMemory.
func (s *session) updateHeld() error {
	if s.hold() {
		return nil
	}
	s.inline.refuse(errNoMemory)
	if j := s.jobs.current; j != nil && j.err == nil {
		j.err = errNoMemory
		j.release()
	}
	if s.hold() {
		return nil
	}
	s.server.memory.Refuse()
	return errMemory
}

// hasRoom reports whether the connection may hold another job. Otherwise no request is read before one has ended.
func (s *session) hasRoom() bool { return s.jobs.running == 0 || s.fits(jobBytes) }

// fits reports whether the connection may hold so many more bytes.
func (s *session) fits(bytes int) bool {
	return s.server.admission.Fits(&s.held, s.bytesHeld()+int64(bytes))
}

// closeLate closes connections if memory is scarce, until it is not: those whose peers have left a request unfinished or
// replies unread for a second, and of them those that hold most. Their memory is free once their event loops have closed
// them.
func (s *Server) closeLate() {
	over := s.admission.Scarce()
	if over <= 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	held := map[*session]int64{} // which changes meanwhile
	for ses := range s.sessions {
		switch bytes := s.admission.Admitted(&ses.held); closeReason(ses.reason.Load()) {
		case closedMemory:
			over -= bytes
		case closedByPeer:
			if bytes > 0 && (isLate(ses.messageSince.Load()) || isLate(ses.unsentSince.Load())) {
				held[ses] = bytes
			}
		}
	}
	late := slices.SortedFunc(maps.Keys(held), func(a, b *session) int { return cmp.Compare(held[b], held[a]) })
	for _, ses := range late {
		if over <= 0 {
			return
		}
		over -= held[ses]
		ses.reason.Store(uint32(closedMemory))
		s.memory.Refuse()
		_ = s.sessions[ses].Close() // it is being closed already
	}
}

// isLate reports whether a time in monotime, 0 for none, is more than a second ago.
func isLate(since int64) bool { return since != 0 && monotime.Now()-since > int64(time.Second) }

// updateUnsent sets unsent and returns it. It sets unsentSince anew when the
// kernel has accepted some of the replies.
func (s *session) updateUnsent() int {
	n := s.conn.OutboundBuffered()
	accepted := s.written - int64(n)
	if n > 0 && s.peerConn != nil { // a peer that reads slowly frees the kernel's buffer in large steps
		accepted -= sockets.Unacknowledged(s.peerConn.Fd())
		if s.tls != nil {
			accepted -= s.tls.Unsent()
		}
	}
	if int64(n) == s.unsent.Load() && accepted == s.accepted {
		return n
	}
	switch {
	case n == 0:
		s.unsentSince.Store(0)
	case accepted > s.accepted || s.unsentSince.Load() == 0:
		s.unsentSince.Store(monotime.Now())
	}
	s.accepted = accepted
	s.unsent.Store(int64(n))
	return n
}

// held returns the bytes of memory that jobs hold.
func (js *jobs) held() int {
	n := js.bytes
	if js.current != nil && js.current.copied != nil {
		n += cap(js.current.copied.B)
	}
	return n
}
