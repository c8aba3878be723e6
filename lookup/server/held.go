package server

import (
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/internal/monotime"
)

// What a connection holds is charged to the account of the server: replies that the peer has
// not read, bytes that wait for a turn, and what an unfinished request has grown. If the
// account is over its bound, or all connections together hold more than their part of it, the
// connections that hold most are closed.

// updateHeld charges what the connection holds now.
func (s *session) updateHeld() {
	held := s.unsent.Load() + int64(s.reader.Held()+s.handler.held()+cap(s.backlog))
	grown := held - s.held.Load()
	if grown == 0 {
		return
	}
	s.held.Store(held)
	if !s.charge(grown, s.metrics.heldStep) {
		s.server.closeLargest()
	}
}

// freeHeld frees what was charged. The connection is closed.
func (s *session) freeHeld() { s.charge(-s.held.Swap(0), 0) }

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

// heldStepOf returns the step of a loop's charges, 0 if hashes and keys of calls have the same
// account. A step is at least what three lookups that wait for a turn hold, unless the spare bytes
// of all loops, two steps each, would exceed a 16th of the bound.
func (s *Server) heldStepOf() int64 {
	if s.backend != nil {
		return 0
	}
	return min(4*readBuffer, s.maxHeld/int64(32*s.cfg.Loops))
}

// closeLargest closes connections, those that hold most first, until the account is within its
// bound. Their memory is free once their event loops have closed them.
func (s *Server) closeLargest() {
	s.mu.Lock()
	defer s.mu.Unlock()
	bytes, maxBytes, _ := s.memory.Usage()
	over := s.charged.Load() - s.maxHeld
	if maxBytes > 0 {
		over = max(over, bytes-maxBytes)
	}
	for ses := range s.sessions {
		if closeReason(ses.reason.Load()) == closedMemory {
			over -= ses.held.Load()
		}
	}
	for over > 0 {
		largest := s.largestLocked()
		if largest == nil {
			return
		}
		over -= largest.held.Load()
		largest.reason.Store(uint32(closedMemory))
		s.memory.Refuse()
		_ = s.sessions[largest].Close() // it is being closed already
	}
}

// largestLocked returns the connection that holds most and is not being closed, nil if none
// holds anything. Server.mu is held.
func (s *Server) largestLocked() (largest *session) {
	most := int64(0)
	for ses := range s.sessions {
		if n := ses.held.Load(); n > most && closeReason(ses.reason.Load()) == closedByPeer {
			largest, most = ses, n
		}
	}
	return largest
}

// updateUnsent sets unsent and returns it. It sets unsentSince anew when the
// kernel has accepted some of the replies.
func (s *session) updateUnsent() int {
	n := s.conn.OutboundBuffered()
	accepted := s.stats.written.Load() - int64(n)
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

// maxHeldOf returns the bound of what connections hold. If the account is also that of a store,
// they have an eighth of it: hashes and keys of calls have the rest, see RemoteConfig.Memory.
func maxHeldOf(memory *lookup.MemoryAccount, shared bool) int64 {
	_, most, _ := memory.Usage()
	switch {
	case most <= 0:
		return DefaultLimits().MaxMemory
	case shared:
		return most / 8
	}
	return most
}
