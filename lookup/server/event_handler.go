package server

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/panjf2000/gnet/v2"
)

// eventHandler receives gnet's events. gnet calls OnOpen, OnTraffic and OnClose of a
// connection on its event loop.
type eventHandler struct {
	gnet.BuiltinEventEngine
	server *Server
}

// OnOpen implements gnet.EventHandler. It gives the connection its session.
func (h *eventHandler) OnOpen(c gnet.Conn) ([]byte, gnet.Action) {
	s := h.server
	ses := newSession(s, c, func() { _ = c.Wake(nil) })
	pending := c.Context().(*pendingConn)
	pending.opened.Store(true)
	c.SetContext(ses)
	ses.peer = pending.peer
	s.mu.Lock()
	s.sessions[ses] = c
	ses.metrics = s.loopMetricsLocked(c.EventLoop())
	s.mu.Unlock()
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
	s.mu.Lock()
	delete(s.sessions, ses)
	s.mu.Unlock()
	s.connections.Add(-1)
	ses.handler.close()
	s.pools.move(ses.pool, nil)
	reason := closeReason(ses.reason.Load())
	s.closed[reason].Add(1)
	if ses.cause != nil {
		err = ses.cause
	}
	s.peers.connectionClosed(reason, ses.peer, err)
	return gnet.None
}

// OnTraffic implements gnet.EventHandler: bytes have arrived on a connection, or a worker
// has woken its event loop.
func (h *eventHandler) OnTraffic(c gnet.Conn) gnet.Action {
	s := h.server
	ses := c.Context().(*session)
	err := s.serveTraffic(c, ses)
	switch {
	case err == nil && s.shuttingDown.Load() && ses.canClose(c):
		return ses.closeWith(closedDraining)
	case err == nil, errors.Is(err, errConnGone):
		return gnet.None
	case errors.Is(err, errSlowReader):
		return ses.closeWith(closedSlowReader)
	}
	ses.cause = err
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

// OnTick implements gnet.EventHandler. It runs on a goroutine of its own.
func (h *eventHandler) OnTick() (time.Duration, gnet.Action) {
	h.server.closeOverdue()
	return sweepEvery, gnet.None
}

// gnetLogger writes gnet's log to the server's. What gnet calls information is debug here.
type gnetLogger struct{ log *slog.Logger }

func (l gnetLogger) Debugf(format string, args ...any) { l.log.Debug(fmt.Sprintf(format, args...)) }
func (l gnetLogger) Infof(format string, args ...any)  { l.log.Debug(fmt.Sprintf(format, args...)) }
func (l gnetLogger) Warnf(format string, args ...any)  { l.log.Warn(fmt.Sprintf(format, args...)) }
func (l gnetLogger) Errorf(format string, args ...any) { l.log.Error(fmt.Sprintf(format, args...)) }
func (l gnetLogger) Fatalf(format string, args ...any) { l.log.Error(fmt.Sprintf(format, args...)) }
