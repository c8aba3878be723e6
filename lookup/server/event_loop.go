package server

import (
	"github.com/panjf2000/gnet/v2"
	"golang.org/x/sys/unix"
)

// eventLoop is what the server keeps for one event loop of gnet: its counters, and the sessions that
// have kept bytes to be served. The loop gives one of these a turn each time it has polled its
// connections, so that connections that send little are served between any two of such turns.
//
// Tasks that are given to gnet meanwhile run before it polls again. So the loop polls a socket, the
// bell, as if it were a connection: a byte in it brings the loop back.
type eventLoop struct {
	metrics loopMetrics
	waiting []*session // in order
	bell    int        // descriptor: what is written to it the loop reads; -1 if there is none
	rung    bool       // the byte has not been read
}

// loopOf returns what the server keeps for an event loop. The loop calls it.
func (s *Server) loopOf(of gnet.EventLoop) *eventLoop {
	s.mu.Lock()
	defer s.mu.Unlock()
	loop := s.loops[of]
	if loop == nil {
		loop = &eventLoop{metrics: loopMetrics{heldStep: s.heldStepOf()}, bell: -1}
		if err := loop.hangBell(s, of); err != nil {
			s.cfg.Logger.Warn("an event loop cannot alternate between its connections", "error", err)
		}
		s.loops[of] = loop
	}
	return loop
}

// hangBell has an event loop poll one end of a pair of sockets.
func (l *eventLoop) hangBell(s *Server, of gnet.EventLoop) error {
	fds, err := socketPair()
	if err != nil {
		return err
	}
	conn, err := connOf(fds[0])
	if err == nil {
		err = unix.SetNonblock(fds[1], true)
	}
	if err == nil {
		_, err = of.Enroll(gnet.NewContext(s.ctx, l), conn) // it closes conn
	}
	if err != nil {
		_ = unix.Close(fds[1])
		return err
	}
	l.bell = fds[1]
	return nil
}

// closeBells releases the descriptors. The loops have ended.
func (s *Server) closeBells() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.loops {
		if l.bell >= 0 {
			_ = unix.Close(l.bell)
			l.bell = -1
		}
	}
}

// push adds a session to those that wait for a turn. It returns false if the loop has no bell.
func (l *eventLoop) push(s *session) bool {
	if l.bell >= 0 && !s.queued {
		s.queued = true
		l.waiting = append(l.waiting, s)
		l.ring()
	}
	return l.bell >= 0
}

// ring brings the loop back after it has polled its connections.
func (l *eventLoop) ring() {
	if !l.rung {
		l.rung = true
		_, _ = unix.Write(l.bell, []byte{0}) // it has room for the only byte
	}
}

// serveNext gives the first session that waits a turn.
func (l *eventLoop) serveNext(server *Server) {
	l.rung = false
	for len(l.waiting) > 0 {
		s := l.waiting[0]
		l.waiting[0] = nil
		l.waiting = l.waiting[1:]
		if s.queued = false; s.keeping.Load() { // otherwise it is closed, or was served when it was woken
			s.beginTurn()
			if server.actionAfter(s.gnetConn, s, s.endTurn(s.serveKept())) == gnet.Close {
				_ = s.gnetConn.Close()
			}
			break
		}
	}
	if len(l.waiting) > 0 {
		l.ring()
	}
}
