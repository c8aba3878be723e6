package server

import (
	"fmt"
	"sync"
	"time"

	"github.com/panjf2000/gnet/v2"
	"golang.org/x/sys/unix"

	"github.com/hitline/hitline/lookup/server/internal/sockets"
	"github.com/hitline/hitline/lookup/tokens"
)

// eventLoop is what the server keeps for one event loop of gnet: its counters, and the sessions that have
// something to do without new bytes: jobs that have ended, or kept bytes. The loop serves some of these each
// time it has polled its connections, so that connections that send little are served meanwhile.
//
// Tasks that are given to gnet run before it polls again. So the loop polls a socket, its wake socket, as if
// it were a connection: a byte in it makes the loop call serve.
type eventLoop struct {
	metrics  loopMetrics
	recorder *tokens.Recorder
	asks     []*tokens.Ask // of this turn, whose replies are not written yet
	wakeFD   int           // the other end of its wake socket

	mu       sync.Mutex
	waiting  []*session // in order
	signaled bool       // the byte has not been read
}

// openWakeSockets gives each event loop its wake socket. gnet hands connections to its loops in turn, and there
// are no others yet.
func (s *Server) openWakeSockets() error {
	for range s.cfg.Loops {
		if err := s.openWakeSocket(); err != nil {
			return fmt.Errorf("cannot wake an event loop: %w", err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.loops) != s.cfg.Loops {
		return fmt.Errorf("%d of %d event loops cannot be woken", s.cfg.Loops-len(s.loops), s.cfg.Loops)
	}
	return nil
}

// openWakeSocket has the next event loop poll one end of a pair of sockets. OnOpen adds the loop to Server.loops.
func (s *Server) openWakeSocket() error {
	fds, err := sockets.Pair()
	if err != nil {
		return err
	}
	s.wakeFDs = append(s.wakeFDs, fds[1])
	if err := unix.SetNonblock(fds[1], true); err != nil {
		return err
	}
	conn, err := sockets.ConnOf(fds[0])
	if err != nil {
		return err
	}
	_, err = s.engine.EnrollContext(conn, &eventLoop{wakeFD: fds[1], recorder: s.accounts.NewRecorder()}) // it closes conn
	return err
}

// closeWakeSockets closes the ends that the server has. The loops and the workers have ended.
func (s *Server) closeWakeSockets() {
	for _, fd := range s.wakeFDs {
		_ = unix.Close(fd)
	}
	s.wakeFDs = nil
}

// push adds a session to those that wait for a turn. Any goroutine may call it.
func (l *eventLoop) push(s *session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !s.queued {
		s.queued = true
		l.waiting = append(l.waiting, s)
		l.signalLocked()
	}
}

// signalLocked makes the loop call serve after it has polled its connections. mu is held.
func (l *eventLoop) signalLocked() {
	if !l.signaled {
		l.signaled = true
		_, _ = unix.Write(l.wakeFD, []byte{0}) // it has room for the only byte
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

// serve serves the sessions that wait, for about a turn. The loop calls it when its wake socket has a byte.
func (l *eventLoop) serve(server *Server) {
	began := time.Now()
	for s := l.pop(); s != nil; s = l.pop() {
		switch {
		case s.closed:
		case s.halfClosed != nil && s.halfClosed.closing.Load():
			server.close(s, nil)
		case server.actionAfter(s.peerConn, s, server.serveTurn(nil, s)) == gnet.Close:
			_ = s.peerConn.Close()
		}
		if time.Since(began) > turnTime {
			break
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.signaled = false; len(l.waiting) > 0 {
		l.signalLocked()
	}
}
