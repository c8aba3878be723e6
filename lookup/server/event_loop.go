package server

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/panjf2000/gnet/v2"
	"golang.org/x/sys/unix"

	"github.com/hitline/hitline/internal/admission"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/server/internal/sockets"
	"github.com/hitline/hitline/lookup/tokens"
)

// eventLoop is what the server keeps for one event loop of gnet: its turn, its counters, and the connections that have
// something to do without new bytes: jobs that have ended, or kept bytes. The loop serves some of these each
// time it has polled its connections, so that connections that send little are served meanwhile.
//
// Tasks that are given to gnet run before it polls again. So the loop polls a socket, its wake socket, as if
// it were a connection: a byte in it makes the loop call serve.
type eventLoop struct {
	metrics   loopMetrics
	limits    *atomic.Pointer[Limits] // of the server
	admission *admission.Admission    // of what connections hold
	memory    *lookup.MemoryAccount
	recorder  *tokens.Recorder
	turn      turn
	wakeFD    int // the other end of its wake socket

	mu       sync.Mutex
	waiting  []*conn // in order
	signaled bool    // the byte has not been read
}

func (s *Server) newEventLoop(wakeFD int) *eventLoop {
	return &eventLoop{
		limits: &s.limits, admission: s.admission, memory: s.memory, recorder: s.accounts.NewRecorder(), wakeFD: wakeFD,
	}
}

// eventLoops are the event loops of a server. Safe for concurrent use.
type eventLoops struct {
	mu      sync.Mutex
	all     map[gnet.EventLoop]*eventLoop
	wakeFDs []int
}

func (ls *eventLoops) add(of gnet.EventLoop, l *eventLoop) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.all[of] = l
}

// of returns a loop, nil if it was not added.
func (ls *eventLoops) of(l gnet.EventLoop) *eventLoop {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.all[l]
}

// metrics returns those of all loops.
func (ls *eventLoops) metrics() (all []*loopMetrics) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, l := range ls.all {
		all = append(all, &l.metrics)
	}
	return all
}

// openWakeSockets gives each event loop its wake socket. gnet hands connections to its loops in turn, and there
// are no others yet.
func (s *Server) openWakeSockets() error {
	for range s.cfg.Loops {
		if err := s.openWakeSocket(); err != nil {
			return fmt.Errorf("cannot wake an event loop: %w", err)
		}
	}
	if n := len(s.loops.metrics()); n != s.cfg.Loops {
		return fmt.Errorf("%d of %d event loops cannot be woken", s.cfg.Loops-n, s.cfg.Loops)
	}
	return nil
}

// openWakeSocket has the next event loop poll one end of a pair of sockets. OnOpen adds the loop.
func (s *Server) openWakeSocket() error {
	fds, err := sockets.Pair()
	if err != nil {
		return err
	}
	s.loops.wakeFDs = append(s.loops.wakeFDs, fds[1])
	if err := unix.SetNonblock(fds[1], true); err != nil {
		return err
	}
	conn, err := sockets.ConnOf(fds[0])
	if err != nil {
		return err
	}
	_, err = s.engine.EnrollContext(conn, s.newEventLoop(fds[1])) // it closes conn
	return err
}

// closeWakeSockets closes the ends that the server has. The loops and the workers have ended.
func (s *Server) closeWakeSockets() {
	for _, fd := range s.loops.wakeFDs {
		_ = unix.Close(fd)
	}
	s.loops.wakeFDs = nil
}

// push adds a connection to those that wait for a turn. Any goroutine may call it.
func (l *eventLoop) push(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !c.queued {
		c.queued = true
		l.waiting = append(l.waiting, c)
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

// crowdedFrom is how many connections wait if a peer that sends much has to wait, too.
const crowdedFrom = 8

// isCrowded reports whether many connections wait for a turn.
func (l *eventLoop) isCrowded() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.waiting) >= crowdedFrom
}

// pop removes and returns the first connection that waits, nil if there is none.
func (l *eventLoop) pop() (c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) == 0 {
		return nil
	}
	c, l.waiting[0] = l.waiting[0], nil
	l.waiting = l.waiting[1:]
	c.queued = false
	return c
}

// serve serves the connections that wait, for about a turn. The loop calls it when its wake socket has a byte.
func (l *eventLoop) serve(server *Server) {
	began := time.Now()
	for c := l.pop(); c != nil; c = l.pop() {
		switch {
		case c.state() == stateClosed:
		case c.isHalfClosed() && c.isEnding():
			server.close(c, nil)
		case server.actionAfter(c, c.serve(nil)) == gnet.Close:
			_ = c.wire.Close()
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
