package server

import (
	"cmp"
	"fmt"
	"log/slog"
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/hitline/hitline/internal/requesterror"
)

// What gnet calls, and its log.

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
		half.End()
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

// gnetLogger writes gnet's log to the server's. What gnet calls information is debug here, and its only
// warning, which is of an event of a connection that has been closed since it was polled.
type gnetLogger struct{ log *slog.Logger }

func (l gnetLogger) Debugf(format string, args ...any) { l.log.Debug(fmt.Sprintf(format, args...)) }

func (l gnetLogger) Infof(format string, args ...any) { l.log.Debug(fmt.Sprintf(format, args...)) }

func (l gnetLogger) Warnf(format string, args ...any) { l.log.Debug(fmt.Sprintf(format, args...)) }

func (l gnetLogger) Errorf(format string, args ...any) { l.log.Error(fmt.Sprintf(format, args...)) }

func (l gnetLogger) Fatalf(format string, args ...any) { l.log.Error(fmt.Sprintf(format, args...)) }

// recovering calls f for the server itself. A panic in it is logged and returned.
func (s *Server) recovering(what string, f func()) error {
	err := requesterror.Run(f)
	if err != nil {
		s.cfg.Logger.Error("the server goes on after a fault", "in", what, "error", err)
	}
	return err
}
