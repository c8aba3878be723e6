package server

import (
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
	if h.server.recovering("opening a connection", func() { h.open(c) }) != nil {
		return nil, gnet.Close
	}
	return nil, gnet.None
}

func (h *eventHandler) open(c gnet.Conn) {
	s := h.server
	if loop, isWakeSocket := c.Context().(*eventLoop); isWakeSocket {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.loops[c.EventLoop()] = loop
		return
	}
	s.mu.Lock()
	loop := s.loops[c.EventLoop()]
	s.mu.Unlock()
	pending := c.Context().(*pendingConn)
	ses := newSession(s, loop, c, pending)
	if ses.tls = pending.tls; ses.tls != nil {
		pending.owner.session.Store(ses)
	}
	pending.opened.Store(true)
	c.SetContext(ses)
	ses.peer, ses.peerConn = pending.peer, c
	ses.servePlain()
	s.mu.Lock()
	s.sessions[ses] = c
	s.mu.Unlock()
	if ses.settings != ses.listener.settings.Load() || ses.pool.isGone() { // who wakes all may have come before
		_ = c.Wake(nil)
	}
	s.cfg.Logger.Debug("connection opened", "peer", ses.peer)
}

// OnClose implements gnet.EventHandler. gnet closes the descriptor after it returns, so
// holders of Server.mu may use the descriptors of Server.sessions.
func (h *eventHandler) OnClose(c gnet.Conn, err error) gnet.Action {
	if ses, ok := c.Context().(*session); ok {
		_ = h.server.recovering("closing a connection", func() {
			if !h.server.halfClose(ses, c, err) {
				h.server.close(ses, err)
			}
		})
	}
	return gnet.None
}

// close ends a session. Its event loop calls it, or stop.
func (s *Server) close(ses *session, err error) {
	if ses.tls != nil { // it is counted until its replies are sent
		ses.tls.EndWrites()
	} else {
		s.connections.Add(-1)
	}
	s.mu.Lock()
	delete(s.sessions, ses)
	s.mu.Unlock()
	reason := closeReason(ses.reason.Load())
	switch limit := s.exceededLimit(ses, reason); {
	case ses.closeErr != nil:
		err = ses.closeErr
	case limit != nil:
		err = limit
	}
	ses.close()
	if ses.halfClosed != nil {
		ses.halfClosed.end()
	}
	s.closed[reason].Add(1)
	s.peers.connectionClosed(reason, ses.peer, err)
}

// OnTraffic implements gnet.EventHandler: bytes have arrived on a connection, or another goroutine
// has woken its event loop.
func (h *eventHandler) OnTraffic(c gnet.Conn) gnet.Action {
	if l, isWakeSocket := c.Context().(*eventLoop); isWakeSocket {
		_, _ = c.Discard(-1)
		l.serve(h.server)
		return gnet.None
	}
	ses := c.Context().(*session)
	return h.server.actionAfter(c, ses, h.server.serveTurn(c, ses))
}

// actionAfter returns what becomes of a connection after a turn that has returned err.
func (s *Server) actionAfter(c peerConn, ses *session, err error) gnet.Action {
	switch {
	case err == nil && ses.halfClosed != nil && ses.isAnswered() && c.OutboundBuffered() == 0:
		return gnet.Close
	case err == nil && s.isClosing(ses) && ses.canClose(c):
		return ses.closeWith(closedDraining)
	case err == nil && ses.pool.isGone() && ses.canClose(c):
		return ses.closeWith(closedPoolGone)
	case err == nil:
		return gnet.None
	}
	ses.closeErr = err
	return ses.closeWith(reasonOf(err))
}

// OnTick implements gnet.EventHandler. It runs on a goroutine of its own.
func (h *eventHandler) OnTick() (time.Duration, gnet.Action) {
	_ = h.server.recovering("looking for overdue connections", h.server.closeOverdue)
	_ = h.server.recovering("looking for late connections", h.server.closeLate)
	_ = h.server.recovering("closing accounts", h.server.pools.closeGone)
	_ = h.server.recovering("looking for full indexes", func() { h.server.logEvictions(time.Now()) })
	return sweepEvery, gnet.None
}

// gnetLogger writes gnet's log to the server's. What gnet calls information is debug here, and its only
// warning, which is of an event of a connection that has been closed since it was polled.
type gnetLogger struct{ log *slog.Logger }

func (l gnetLogger) Debugf(format string, args ...any) { l.log.Debug(fmt.Sprintf(format, args...)) }
func (l gnetLogger) Infof(format string, args ...any)  { l.log.Debug(fmt.Sprintf(format, args...)) }
func (l gnetLogger) Warnf(format string, args ...any)  { l.log.Debug(fmt.Sprintf(format, args...)) }
func (l gnetLogger) Errorf(format string, args ...any) { l.log.Error(fmt.Sprintf(format, args...)) }
func (l gnetLogger) Fatalf(format string, args ...any) { l.log.Error(fmt.Sprintf(format, args...)) }
