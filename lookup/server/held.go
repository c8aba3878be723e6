package server

import (
	"cmp"
	"slices"
	"time"

	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/internal/monotime"
)

// What a connection holds is charged to the account of the server: replies that the peer has
// not read, bytes that wait for a turn, unfinished requests and jobs. If the account is over its
// bound, or all connections together hold more than their part of it, some are closed: see closeLargest.

// updateHeld charges what the connection holds now. It returns errMemory if memory is short and the
// connection has more kept than a client may have in flight.
func (s *session) updateHeld() error {
	held := s.unsent.Load() + int64(s.reader.Held()+s.inline.held()+s.jobs.held()+s.kept.held())
	grown := held - s.held.Load()
	if grown == 0 {
		return nil
	}
	s.held.Store(held)
	if s.charge(grown, s.metrics.heldStep) {
		return nil
	}
	s.server.signalOverMemory()
	if s.kept.size > maxInFlightBytes {
		s.server.memory.Refuse()
		return errMemory
	}
	return nil
}

// charge charges n bytes, which may be negative, to the account. It returns false if they exceed a
// bound. The loops share the account. So a loop rounds what it charges up to a multiple of step,
// and keeps up to two steps more than its connections hold: requests whose bytes come and go write
// to nothing that other loops write to. With a step of 0 it charges what they hold.
func (s *session) charge(n, step int64) (within bool) {
	m := s.metrics
	held := m.held.Add(n)
	if m.heldStep > 0 {
		if spare := m.charged - held; 0 <= spare && spare <= 2*step {
			return true
		}
		if step > 0 {
			held += step - held%step
		}
		n, m.charged = held-m.charged, held
	}
	all := s.server.charged.Add(n)
	return s.server.memory.Charge(n) && all <= s.server.maxHeld || n <= 0
}

// heldStepOf returns the step of a loop's charges. The spare bytes of all loops, two steps each, are at
// most a 16th of the bound.
func (s *Server) heldStepOf() int64 {
	return min(4*readOnBuffer, s.maxHeld/int64(32*s.cfg.Loops))
}

// signalOverMemory makes watch call closeLargest: event loops have no time for it.
func (s *Server) signalOverMemory() {
	select {
	case s.overMemory <- struct{}{}:
	default:
	}
}

// closeLargest closes connections until the account is within its bound: first those whose peers have left a
// request unfinished or replies unread for a second, then the others, and of either those that hold most. Their
// memory is free once their event loops have closed them.
func (s *Server) closeLargest() {
	s.mu.Lock()
	defer s.mu.Unlock()
	bytes, maxBytes, _ := s.memory.Usage()
	over := s.charged.Load() - s.maxHeld
	if maxBytes > 0 {
		over = max(over, bytes-maxBytes)
	}
	var open []*session
	for ses := range s.sessions {
		switch held := ses.held.Load(); closeReason(ses.reason.Load()) {
		case closedMemory:
			over -= held
		case closedByPeer:
			if held > 0 {
				open = append(open, ses)
			}
		}
	}
	if over <= 0 {
		return
	}
	held, late := make(map[*session]int64, len(open)), map[*session]int{} // which change meanwhile
	for _, ses := range open {
		held[ses] = ses.held.Load()
		if isLate(ses.messageSince.Load()) || isLate(ses.unsentSince.Load()) {
			late[ses] = 1
		}
	}
	slices.SortFunc(open, func(a, b *session) int {
		return cmp.Or(cmp.Compare(late[b], late[a]), cmp.Compare(held[b], held[a]))
	})
	for _, ses := range open {
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
	if n > 0 && s.gnetConn != nil { // a peer that reads slowly frees the kernel's buffer in large steps
		accepted -= unacknowledged(s.gnetConn.Fd())
		if s.tls != nil {
			accepted -= s.tls.unsent()
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

// maxHeldOf returns the bound on what connections hold: the whole account, or five sixteenths of it if the
// keys of a store are charged to the same account: see RemoteConfig.Memory.
func maxHeldOf(memory *lookup.MemoryAccount, shared bool) int64 {
	_, maxMemory, _ := memory.Usage()
	switch {
	case maxMemory <= 0:
		return DefaultLimits().MaxMemory
	case shared:
		return maxMemory * 5 / 16
	}
	return maxMemory
}

// held returns the bytes of memory that jobs hold.
func (js *jobs) held() int {
	n := js.bytes + js.replyBytes + js.hashBytes
	if js.current != nil && js.current.copied != nil {
		n += len(js.current.copied.B)
	}
	return n
}
