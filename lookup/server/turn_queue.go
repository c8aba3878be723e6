package server

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// turnQueue holds the sessions of one event loop that wait for a turn, in order. The loop
// gives one of them a turn each time it has polled its connections, so that connections that
// send little are served between any two of these turns.
//
// gnet runs what is triggered from within the loop before it polls again. So the queue wakes
// the loop through a socket pair, which the loop polls like a connection.
//
// It belongs to its loop, and to closeTurnQueues when that has ended.
type turnQueue struct {
	sessions []*session
	first    [8]*session // room for a short queue, which so allocates nothing
	signal   int         // descriptor: a byte written to it wakes the loop
	signaled bool        // the byte has not been read
}

// startTurnQueues gives each event loop its queue. gnet hands connections to its loops
// round-robin, and there are no others yet.
func (s *Server) startTurnQueues() error {
	for range s.cfg.Loops {
		if err := s.startTurnQueue(); err != nil {
			return fmt.Errorf("server: cannot wake an event loop: %w", err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.loops) != s.cfg.Loops {
		return fmt.Errorf("server: %d of %d event loops have no turn queue", s.cfg.Loops-len(s.loops), s.cfg.Loops)
	}
	return nil
}

// startTurnQueue gives the next event loop its queue: OnOpen adds it to Server.loops.
func (s *Server) startTurnQueue() error {
	fds, err := socketPair()
	if err != nil {
		return err
	}
	q := &turnQueue{signal: fds[1]}
	if err := unix.SetNonblock(q.signal, true); err != nil {
		return err
	}
	s.turnQueues = append(s.turnQueues, q)
	conn, err := connOf(fds[0])
	if err != nil {
		return err
	}
	_, err = s.engine.EnrollContext(conn, q) // it closes conn
	return err
}

// closeTurnQueues releases the descriptors. The loops have ended.
func (s *Server) closeTurnQueues() {
	for _, q := range s.turnQueues {
		_ = unix.Close(q.signal)
	}
	s.turnQueues = nil
}

// push adds a session, unless it is queued.
func (q *turnQueue) push(s *session) {
	if s.queued {
		return
	}
	s.queued = true
	if len(q.sessions) == 0 {
		q.sessions = q.first[:0]
	}
	q.sessions = append(q.sessions, s)
	q.wakeLoop()
}

// pop removes and returns the first session whose connection is open, nil if there is none.
func (q *turnQueue) pop() *session {
	for len(q.sessions) > 0 {
		s := q.sessions[0]
		q.sessions[0] = nil
		q.sessions = q.sessions[1:]
		if s.queued = false; s.waiting.Load() {
			return s
		}
	}
	q.sessions = nil
	return nil
}

// wakeLoop makes the loop call handleTurn after it has polled its connections.
func (q *turnQueue) wakeLoop() {
	if q.signaled {
		return
	}
	q.signaled = true
	_, _ = unix.Write(q.signal, []byte{0}) // it has room for the only byte
}
