package server

import (
	"context"
	"errors"
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/hitline/hitline/lookup/internal/monotime"
)

// What is done once a second.

// OnTick implements gnet.EventHandler. It runs on a goroutine of its own.
func (h *eventHandler) OnTick() (time.Duration, gnet.Action) {
	s := h.server
	_ = s.recovering("looking for overdue connections", s.closeOverdue)
	_ = s.recovering("looking for late connections", func() { s.conns.evictLate(s.admission.Scarce()) })
	_ = s.recovering("closing accounts", s.pools.closeGone)
	_ = s.recovering("looking for full indexes", func() { h.logEvictions(time.Now()) })
	return sweepEvery, gnet.None
}

// sweepEvery is the interval of OnTick. Timeouts are seconds long.
const sweepEvery = time.Second

// closeOverdue closes the connections that have passed a timeout. An idle connection with
// unread bytes is not closed: its loop is late, not its peer.
func (s *Server) closeOverdue() {
	s.sweeps.Add(1)
	now := monotime.Now()
	s.conns.each(func(c *conn) {
		if c.unsent.bytes.Load() != 0 {
			_ = c.wire.Wake(nil) // its event loop updates what is unsent
		}
		reason := c.overdue(now)
		if reason == notClosed || reason.bySilence() && c.hasUnread() {
			return
		}
		c.end(reason)
		if err := c.wire.Close(); err != nil {
			s.cfg.Logger.Warn("cannot close a connection", "reason", reason, "error", err)
		}
	})
}

// logEvictions logs once for each pool over memory that its index is full and evicts. At most one line comes a second.
// It is called once a second, and not by two goroutines at a time.
func (h *eventHandler) logEvictions(now time.Time) {
	s := h.server
	for _, p := range s.pools.list() {
		age, evicts := p.service.Memory().EvictionAge(now)
		if !evicts || p.evictionLogged {
			continue
		}
		if _, ok := s.evictionLog.Admit(now); !ok {
			continue // the next call logs it
		}
		p.evictionLogged = true
		stat := p.service.Stat()
		s.cfg.Logger.Warn("the memory index is full and evicts blocks: raise its bound if prompts come back later than unused_for",
			"pool", p.name, "unused_for", age.Round(time.Second),
			"entries", stat.Entries, "max_bytes", stat.MaxBytes, "max_entries", stat.MaxEntries)
	}
}

// watch stops the server when an event loop has ended by itself: new connections would go
// to that loop and hang. gnet reports it only by calling OnTick no longer.
func (s *Server) watch(maxMissed int) {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	last, missed := int64(0), 0
	for missed < maxMissed {
		select {
		case <-s.done:
			return
		case <-tick.C:
		}
		if n := s.sweeps.Load(); n != last {
			last, missed = n, 0
		} else {
			missed++
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), sweepEvery)
	defer cancel()
	s.acceptor.close(ctx)
	s.stop(errors.New("an event loop ended"))
}

// maxMissedSweeps is how many sweeps in a row must be missing before watch stops the
// server. An overloaded machine delays sweeps and watch alike.
const maxMissedSweeps = 10
