package server

import (
	"fmt"
	"sync"
	"time"

	"github.com/panjf2000/gnet/v2"
	"golang.org/x/sys/unix"
)

// eventLoop is what the server keeps for one event loop of gnet: its counters, and the sessions that have
// something to do without new bytes: jobs that have ended, or kept bytes. The loop serves some of these each
// time it has polled its connections, so that connections that send little are served meanwhile.
//
// Tasks that are given to gnet run before it polls again. So the loop polls a socket, the bell, as if it
// were a connection: a byte in it brings the loop here.
type eventLoop struct {
	metrics loopMetrics
	bell    int // descriptor: what is written to it the loop reads

	mu      sync.Mutex
	waiting []*session // in order
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

// push adds a session to those that wait for a turn. Any goroutine may call it.
func (l *eventLoop) push(s *session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !s.queued {
		s.queued = true
		l.waiting = append(l.waiting, s)
		l.ringLocked()
	}
}

// ringLocked brings the loop back after it has polled its connections. mu is held.
func (l *eventLoop) ringLocked() {
	if !l.rung {
		l.rung = true
		_, _ = unix.Write(l.bell, []byte{0}) // it has room for the only byte
	}
}

// crowdedFrom is how many sessions wait if a peer that sends much has to wait, too.
const crowdedFrom = 8

// isCrowded reports whether many sessions wait for a turn.
func (l *eventLoop) isCrowded() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.waiting) >= crowdedFrom
}

// pop removes and returns the first session that waits, nil if there is none.
func (l *eventLoop) pop() (s *session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) == 0 {
		return nil
	}
	s, l.waiting[0] = l.waiting[0], nil
	l.waiting = l.waiting[1:]
	s.queued = false
	return s
}

// serve serves the sessions that wait, for about a turn. The loop calls it when the bell has rung.
func (l *eventLoop) serve(server *Server) {
	began := time.Now()
	for s := l.pop(); s != nil; s = l.pop() {
		if !s.closed {
			s.beginTurn()
			if server.actionAfter(s.gnetConn, s, s.endTurn(s.wake())) == gnet.Close {
				_ = s.gnetConn.Close()
			}
		}
		if time.Since(began) > turnTime {
			break
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rung = false; len(l.waiting) > 0 {
		l.ringLocked()
	}
}
