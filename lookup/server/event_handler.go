package server

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/panjf2000/gnet/v2"
)

// eventHandler receives gnet's events. gnet calls OnOpen, OnTraffic and OnClose of a
// connection on its event loop.
type eventHandler struct {
	gnet.BuiltinEventEngine
	server *Server
}

// eventLoop is what the server keeps for one event loop of gnet.
type eventLoop struct {
	metrics loopMetrics
	turns   *turnQueue
}

// OnOpen implements gnet.EventHandler. It gives the connection its session.
func (h *eventHandler) OnOpen(c gnet.Conn) ([]byte, gnet.Action) {
	s := h.server
	if q, ok := c.Context().(*turnQueue); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.loops[c.EventLoop()] = &eventLoop{turns: q, metrics: loopMetrics{heldStep: s.heldStepOf()}}
		return nil, gnet.None
	}
	pending := c.Context().(*pendingConn)
	s.mu.Lock()
	loop := s.loops[c.EventLoop()]
	s.mu.Unlock()
	ses := newSession(s, loop, c, pending, func() { _ = c.Wake(nil) })
	if ses.tls = pending.tls; ses.tls != nil {
		ses.tls.session.Store(ses)
	}
	pending.opened.Store(true)
	c.SetContext(ses)
	ses.peer, ses.gnetConn, ses.reading = pending.peer, c, newReadPauser(c)
	ses.servePlain()
	s.mu.Lock()
	s.sessions[ses] = c
	s.mu.Unlock()
	if ses.settings != ses.listener.settings.Load() { // wakeSessions may have come before
		_ = c.Wake(nil)
	}
	s.cfg.Logger.Debug("connection opened", "peer", ses.peer)
	return nil, gnet.None
}

// OnClose implements gnet.EventHandler. gnet closes the descriptor after it returns, so
// holders of Server.mu may use the descriptors of Server.sessions.
func (h *eventHandler) OnClose(c gnet.Conn, err error) gnet.Action {
	s := h.server
	ses, ok := c.Context().(*session)
	if !ok {
		return gnet.None
	}
	ses.reading.restore()
	if ses.tls != nil { // it is counted until its replies are sent
		ses.tls.sessionEnded()
	} else {
		s.connections.Add(-1)
	}
	s.mu.Lock()
	delete(s.sessions, ses)
	s.mu.Unlock()
	if ses.out == nil { // otherwise the turn is not over, and Write has called OnClose
		ses.dropBacklog()
	}
	ses.handler.close()
	reason := closeReason(ses.reason.Load())
	switch limit := s.limitError(ses, reason); {
	case ses.cause != nil:
		err = ses.cause
	case limit != nil:
		err = limit
	}
	ses.freeHeld()
	s.pools.move(ses.pool, nil)
	s.closed[reason].Add(1)
	s.peers.connectionClosed(reason, ses.peer, err)
	return gnet.None
}

// OnTraffic implements gnet.EventHandler: bytes have arrived on a connection, or a worker
// has woken its event loop, or it is time for the next turn of a turnQueue.
func (h *eventHandler) OnTraffic(c gnet.Conn) gnet.Action {
	s := h.server
	if q, ok := c.Context().(*turnQueue); ok {
		_, _ = c.Discard(-1)
		s.handleTurn(q)
		return gnet.None
	}
	ses := c.Context().(*session)
	return s.actionAfter(c, ses, s.serveTraffic(c, ses))
}

// actionAfter returns what becomes of a connection after a turn that has returned err.
func (s *Server) actionAfter(c gnet.Conn, ses *session, err error) gnet.Action {
	switch {
	case err == nil && s.shuttingDown.Load() && ses.canClose(c):
		return ses.closeWith(closedDraining)
	case err == nil, errors.Is(err, errConnGone):
		return gnet.None
	case errors.Is(err, errSlowReader):
		return ses.closeWith(closedSlowReader)
	}
	ses.cause = explain(err)
	return ses.closeWith(reasonOf(err))
}

// serveTraffic passes all bytes that have arrived to the session, so that gnet never copies a
// remainder. If there are none, a Wake has caused the call.
func (s *Server) serveTraffic(c gnet.Conn, ses *session) error {
	p, err := c.Peek(-1)
	if err != nil {
		return nil //nolint:nilerr // the connection is closing
	}
	n := len(p)
	if n == 0 {
		return ses.handleWake()
	}
	if err := ses.receive(p); err != nil {
		return err
	}
	_, _ = c.Discard(n)
	return s.continueRead(c, ses, n)
}

// handleTurn gives the first session of a queue a turn. If it has more to do then, it goes to
// the end of the queue.
func (s *Server) handleTurn(q *turnQueue) {
	q.signaled = false
	ses := q.pop()
	if ses == nil {
		return
	}
	c := ses.gnetConn
	if s.actionAfter(c, ses, ses.takeTurn()) == gnet.Close {
		_ = c.Close() // after the loop has handled the events that it has polled: this one's may be among them
	} else if ses.waiting.Load() {
		q.push(ses)
	}
	if len(q.sessions) > 0 {
		q.wakeLoop()
	}
}

// OnTick implements gnet.EventHandler. It runs on a goroutine of its own.
func (h *eventHandler) OnTick() (time.Duration, gnet.Action) {
	h.server.closeOverdue()
	return sweepEvery, gnet.None
}

// gnetLogger writes gnet's log to the server's. What gnet calls information is debug here.
type gnetLogger struct{ log *slog.Logger }

func (l gnetLogger) Debugf(format string, args ...any) { l.log.Debug(fmt.Sprintf(format, args...)) }
func (l gnetLogger) Infof(format string, args ...any)  { l.log.Debug(fmt.Sprintf(format, args...)) }
func (l gnetLogger) Warnf(format string, args ...any) {
	// A turn of a turnQueue has found a connection broken that was among the polled ones.
	if strings.Contains(format, "stale connection") {
		l.Debugf(format, args...)
		return
	}
	l.log.Warn(fmt.Sprintf(format, args...))
}
func (l gnetLogger) Errorf(format string, args ...any) { l.log.Error(fmt.Sprintf(format, args...)) }
func (l gnetLogger) Fatalf(format string, args ...any) { l.log.Error(fmt.Sprintf(format, args...)) }
