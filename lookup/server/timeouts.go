package server

import (
	"fmt"
	"time"

	"github.com/hitline/hitline/lookup/internal/monotime"
)

// sweepEvery is the interval of closeOverdue. Timeouts are seconds long.
const sweepEvery = time.Second

// closeOverdue closes the connections that have passed a timeout. An idle connection with
// unread bytes is not closed: its loop is late, not its peer.
func (s *Server) closeOverdue() {
	s.sweeps.Add(1)
	now := monotime.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for ses, c := range s.sessions {
		if ses.unsent.Load() != 0 {
			_ = c.Wake(nil) // its event loop sets unsentSince anew
		}
		reason := s.overdue(ses, now)
		if reason == closedByPeer || reason.bySilence() && ses.hasUnread(c) { // s.mu keeps the descriptor open: see OnClose
			continue
		}
		ses.reason.Store(uint32(reason))
		if err := c.Close(); err != nil {
			s.cfg.Logger.Warn("cannot close a connection", "reason", reason, "error", err)
		}
	}
}

// exceededLimit returns which limit the peer of a closed connection has passed, for the log. It
// returns nil if the reason is no limit, or has an error of its own.
func (s *Server) exceededLimit(ses *session, reason closeReason) error {
	limits := ses.limits.Load()
	switch reason {
	case closedMemory:
		return fmt.Errorf("limits.max_memory is used up; this connection held %d bytes of it", ses.held.Bytes())
	case closedSlowReader:
		return fmt.Errorf("more than %d bytes of replies are not read", limits.MaxUnsent)
	case closedInFlight:
		return fmt.Errorf("more than limits.max_in_flight (%d) requests have no reply, or more than a message and %d bytes wait behind one that changes something", limits.MaxInFlight, maxInFlightBytes)
	case closedWriteTimeout:
		return fmt.Errorf("no reply was read for limits.write_timeout (%v)", limits.WriteTimeout)
	case closedMessageTimeout:
		return fmt.Errorf("a request did not end within limits.message_timeout (%v)", limits.MessageTimeout)
	case closedHandshakeTimeout:
		return fmt.Errorf("a handshake did not end within limits.handshake_timeout (%v)", limits.HandshakeTimeout)
	case closedExpired:
		return errExpired
	}
	return nil
}

// overdue returns the timeout that a session has passed, closedByPeer if it has passed none.
func (s *Server) overdue(ses *session, now int64) closeReason {
	limits := ses.limits.Load()
	if since := ses.unsentSince.Load(); since != 0 && now-since > int64(limits.WriteTimeout) {
		return closedWriteTimeout
	}
	if ses.expiredAt(time.Now()) {
		return closedExpired
	}
	if ses.keeping.Load() { // the server is late, not its peer
		return closedByPeer
	}
	if since := ses.messageSince.Load(); since != 0 && now-since > int64(limits.MessageTimeout) {
		return closedMessageTimeout
	}
	if since := ses.handshakeSince.Load(); since != 0 && now-since > int64(limits.HandshakeTimeout) {
		return closedHandshakeTimeout
	}
	if ttl := ses.ttl.Load(); ttl > 0 && now-ses.lastActive.Load() > ttl {
		return closedHeartbeatTimeout
	}
	idle := ses.messageSince.Load() == 0 && ses.handshakeSince.Load() == 0 && ses.inFlight.Load() == 0
	if limits.IdleTimeout > 0 && idle && now-ses.lastActive.Load() > int64(limits.IdleTimeout) {
		return closedIdleTimeout
	}
	return closedByPeer
}
