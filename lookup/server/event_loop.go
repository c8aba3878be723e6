package server

import (
	"fmt"

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
	bell    int        // descriptor: what is written to it the loop reads
	rung    bool       // the byte has not been read
}

// hangBells gives each event loop its bell. gnet hands connections to its loops in turn, and there are no
// others yet.
func (s *Server) hangBells() error {
	for range s.cfg.Loops {
		if err := s.hangBell(); err != nil {
			return fmt.Errorf("server: cannot wake an event loop: %w", err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.loops) != s.cfg.Loops {
		return fmt.Errorf("server: %d of %d event loops cannot be woken", s.cfg.Loops-len(s.loops), s.cfg.Loops)
	}
	return nil
}

// hangBell has the next event loop poll one end of a pair of sockets. OnOpen adds it to Server.loops.
func (s *Server) hangBell() error {
	fds, err := socketPair()
	if err != nil {
		return err
	}
	s.bells = append(s.bells, fds[1])
	if err := unix.SetNonblock(fds[1], true); err != nil {
		return err
	}
	conn, err := connOf(fds[0])
	if err != nil {
		return err
	}
	_, err = s.engine.EnrollContext(conn, &eventLoop{metrics: loopMetrics{heldStep: s.heldStepOf()}, bell: fds[1]}) // it closes conn
	return err
}

// closeBells releases the descriptors. The loops have ended.
func (s *Server) closeBells() {
	for _, bell := range s.bells {
		_ = unix.Close(bell)
	}
	s.bells = nil
}

// push adds a session to those that wait for a turn.
func (l *eventLoop) push(s *session) {
	if !s.queued {
		s.queued = true
		l.waiting = append(l.waiting, s)
		l.ring()
	}
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
