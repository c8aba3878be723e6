package server

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"syscall"
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/hitline/hitline/lookup/internal/monotime"
	"github.com/hitline/hitline/lookup/server/internal/sockets"
	"github.com/hitline/hitline/lookup/server/internal/tlspair"
)

// eventHandler receives gnet's events. gnet calls OnOpen, OnTraffic and OnClose of a
// connection on its event loop.
type eventHandler struct {
	gnet.BuiltinEventEngine
	server *Server
}

// OnOpen implements gnet.EventHandler. It gives the connection its session.
func (h *eventHandler) OnOpen(c gnet.Conn) ([]byte, gnet.Action) {
	if h.server.recovering("opening a connection", func() { h.open(c) }) != nil {
		return nil, gnet.Close
	}
	return nil, gnet.None
}

func (h *eventHandler) open(g gnet.Conn) {
	s := h.server
	if loop, isWakeSocket := g.Context().(*eventLoop); isWakeSocket {
		s.loops.add(g.EventLoop(), loop)
		return
	}
	pending := g.Context().(*pendingConn)
	c := newConn(s.loops.of(g.EventLoop()), g)
	ses := newSession(s.shared, c, pending)
	c.tls, c.peer = pending.tls, pending.peer
	pending.conn.Store(c)
	g.SetContext(c)
	ses.servePlain()
	s.conns.add(c)
	if ses.settings != ses.listener.settings.Load() || ses.pool.isGone() { // SetListener or SetPools may have run before it was added
		_ = g.Wake(nil)
	}
	s.cfg.Logger.Debug("connection opened", "peer", c.peer)
}

// OnClose implements gnet.EventHandler. gnet closes the descriptor after it returns: see openConns.
func (h *eventHandler) OnClose(g gnet.Conn, err error) gnet.Action {
	if c, ok := g.Context().(*conn); ok {
		_ = h.server.recovering("closing a connection", func() {
			if !h.halfClose(c, g, err) {
				h.close(c, err)
			}
		})
	}
	return gnet.None
}

// close ends a connection. Its event loop calls it, or stop.
func (h *eventHandler) close(c *conn, err error) {
	s := h.server
	if c.tls != nil { // it is counted until its replies are sent
		c.tls.EndWrites()
	} else {
		s.connections.Add(-1)
	}
	s.conns.remove(c)
	err = cmp.Or(c.err, c.exceededLimit(), err)
	c.close()
	if half, is := c.wire.(*halfClosed); is {
		half.end()
	}
	s.peers.connectionClosed(c.reason(), c.peer, err)
	s.conns.tellEmptied()
}

// OnTraffic implements gnet.EventHandler: bytes have arrived on a connection, or another goroutine
// has woken its event loop.
func (h *eventHandler) OnTraffic(g gnet.Conn) gnet.Action {
	if l, isWakeSocket := g.Context().(*eventLoop); isWakeSocket {
		_, _ = g.Discard(-1)
		h.serveWaiting(l)
		return gnet.None
	}
	c := g.Context().(*conn)
	return h.actionAfter(c, c.serve(g))
}

// serveWaiting serves the connections that wait, for about a turn. The loop calls it when its wake socket has a byte.
func (h *eventHandler) serveWaiting(l *eventLoop) {
	began := time.Now()
	for w := l.pop(); w != nil; w = l.pop() {
		switch c := w.(*conn); {
		case c.state() == stateClosed:
		case c.isHalfClosed() && c.isEnding():
			h.close(c, nil)
		case h.actionAfter(c, c.serve(nil)) == gnet.Close:
			_ = c.wire.Close()
		}
		if time.Since(began) > turnTime {
			break
		}
	}
	l.endServing()
}

// actionAfter returns what becomes of a connection after a turn that has returned err.
func (h *eventHandler) actionAfter(c *conn, err error) gnet.Action {
	s := h.server
	switch {
	case err != nil:
		c.fail(err)
	case c.isHalfClosed() && c.isAnswered() && c.wire.OutboundBuffered() == 0:
		c.end(closedByPeer)
	case s.isClosing(c) && c.canClose():
		c.end(closedDraining)
	case c.protocol.pending().over && c.canClose():
		c.end(closedPoolGone)
	default:
		return gnet.None
	}
	return gnet.Close
}

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

// gnetLogger writes gnet's log to the server's. What gnet calls information is debug here, and its only
// warning, which is of an event of a connection that has been closed since it was polled.
type gnetLogger struct{ log *slog.Logger }

func (l gnetLogger) Debugf(format string, args ...any) { l.log.Debug(fmt.Sprintf(format, args...)) }
func (l gnetLogger) Infof(format string, args ...any)  { l.log.Debug(fmt.Sprintf(format, args...)) }
func (l gnetLogger) Warnf(format string, args ...any)  { l.log.Debug(fmt.Sprintf(format, args...)) }
func (l gnetLogger) Errorf(format string, args ...any) { l.log.Error(fmt.Sprintf(format, args...)) }
func (l gnetLogger) Fatalf(format string, args ...any) { l.log.Error(fmt.Sprintf(format, args...)) }

// halfClose keeps a connection that gnet closes, if its peer has sent a FIN and waits for replies. It returns
// false if there are none, or if they cannot be written. What gnet has not sent yet it may drop, so nothing can follow.
func (h *eventHandler) halfClose(c *conn, g gnet.Conn, why error) bool {
	s := h.server
	if !errors.Is(why, io.EOF) || c.isAnswered() || g.OutboundBuffered() > 0 || sockets.IsBroken(g.Fd()) {
		return false
	}
	fd, err := g.Dup()
	if err != nil {
		return false
	}
	socket, err := sockets.ConnOf(fd)
	if err != nil {
		return false
	}
	raw, err := socket.(syscall.Conn).SyscallConn()
	if err != nil || !c.enter(stateHalfClosed, notClosed) {
		_ = socket.Close()
		return false
	}
	_ = socket.SetDeadline(time.Now().Add(s.jobTimeout()))
	half := &halfClosed{of: c, socket: socket, written: make(chan struct{}, 1)}
	_ = raw.Control(func(fd uintptr) { half.fd = int(fd) })
	s.conns.mu.Lock()
	c.wire = half
	s.conns.mu.Unlock()
	s.halfClosed.Go(half.write)
	s.halfClosed.Go(func() {
		_ = raw.Read(func(fd uintptr) bool { return sockets.IsBroken(int(fd)) }) // it fails after the deadline
		_ = half.Close()
	})
	c.loop.push(c)
	return true
}

// jobTimeout returns how long a job takes at most.
func (s *shared) jobTimeout() time.Duration {
	if s.backend == nil {
		return tlspair.FlushTimeout
	}
	return max(s.backend.Config().Timeout, s.backend.Config().WriteTimeout)
}

// closeHalfClosed ends the half-closed connections, and waits for their goroutines. The event loops have ended.
func (h *eventHandler) closeHalfClosed() {
	s := h.server
	var left []*conn
	s.conns.each(func(c *conn) {
		if _, is := c.wire.(*halfClosed); is {
			left = append(left, c)
		}
	})
	for _, c := range left {
		h.close(c, nil)
	}
	s.halfClosed.Wait()
}
