package server

import (
	"context"

	"github.com/panjf2000/gnet/v2"
)

// eventLoop is what the server keeps for one event loop of gnet: its counters, and the sessions that
// have kept bytes to be served. The loop gives one of these a turn each time it has polled its
// connections, so that connections that send little are served between any two of such turns.
//
// What the loop itself schedules gnet runs before it polls again. So a goroutine does.
type eventLoop struct {
	metrics loopMetrics
	server  *Server
	gnet    gnet.EventLoop
	waiting []*session    // in order; the loop's own
	next    chan struct{} // holds an element while a turn is due and not scheduled
}

// loopOf returns what the server keeps for an event loop.
func (s *Server) loopOf(of gnet.EventLoop) *eventLoop {
	s.mu.Lock()
	defer s.mu.Unlock()
	loop := s.loops[of]
	if loop == nil {
		loop = &eventLoop{metrics: loopMetrics{heldStep: s.heldStepOf()}, server: s, gnet: of, next: make(chan struct{}, 1)}
		s.loops[of] = loop
		s.schedulers.Go(loop.schedule)
	}
	return loop
}

// schedule schedules the turns of the loop until the server stops.
func (l *eventLoop) schedule() {
	for {
		select {
		case <-l.next:
			_ = l.gnet.Execute(l.server.ctx, l) // fails if the server stops
		case <-l.server.ctx.Done():
			return
		}
	}
}

// push adds a session to those that wait for a turn.
func (l *eventLoop) push(s *session) {
	if s.queued {
		return
	}
	s.queued = true
	l.waiting = append(l.waiting, s)
	l.signal()
}

// signal has a turn scheduled.
func (l *eventLoop) signal() {
	select {
	case l.next <- struct{}{}:
	default: // one is
	}
}

// Run implements gnet.Runnable: it gives the first session that waits a turn.
func (l *eventLoop) Run(context.Context) error {
	for len(l.waiting) > 0 {
		s := l.waiting[0]
		l.waiting[0] = nil
		l.waiting = l.waiting[1:]
		if s.queued = false; s.keeping.Load() { // otherwise it is closed, or was served when it was woken
			s.beginTurn()
			if l.server.actionAfter(s.gnetConn, s, s.endTurn(s.serveKept())) == gnet.Close {
				_ = s.gnetConn.Close()
			}
			break
		}
	}
	if len(l.waiting) > 0 {
		l.signal()
	}
	return nil
}
