package server

import (
	"sync"
	"sync/atomic"

	"github.com/panjf2000/gnet/v2"
	"golang.org/x/sys/cpu"
	"golang.org/x/sys/unix"

	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/server/internal/held"
	"github.com/hitline/hitline/lookup/tokens"
)

// eventLoop is what the server keeps for one event loop of gnet: its turn, its counters, and the connections that have
// something to do without new bytes: jobs that have ended, or kept bytes. The loop serves some of these each
// time it has polled its connections, so that connections that send little are served meanwhile.
//
// Tasks that are given to gnet run before it polls again. So the loop polls a socket, its wake socket, as if
// it were a connection: a byte in it makes the loop call eventHandler.serveWaiting.
type eventLoop struct {
	_             cpu.CacheLinePad
	metrics       *loopMetrics
	limits        *atomic.Pointer[Limits] // of the server
	admission     *held.Admission         // of what connections hold
	memoryAccount *lookup.MemoryAccount
	recorder      *tokens.Recorder
	turn          turn
	wakeFD        int // the other end of its wake socket

	_        cpu.CacheLinePad // workers write to what follows
	mu       sync.Mutex
	waiting  []waiter // in order
	signaled bool     // the byte has not been read
	_        cpu.CacheLinePad
}

// waiter is what can wait for a turn: a connection.
type waiter interface {
	// inQueue returns whether it is in eventLoop.waiting. eventLoop.mu guards it.
	inQueue() *bool
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
		all = append(all, l.metrics)
	}
	return all
}

// push adds a connection to those that wait for a turn. Any goroutine may call it.
func (l *eventLoop) push(c waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if queued := c.inQueue(); !*queued {
		*queued = true
		l.waiting = append(l.waiting, c)
		l.signalLocked()
	}
}

// signalLocked makes the loop call eventHandler.serveWaiting after it has polled its connections. mu is held.
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
func (l *eventLoop) pop() (c waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) == 0 {
		return nil
	}
	c, l.waiting[0] = l.waiting[0], nil
	l.waiting = l.waiting[1:]
	*c.inQueue() = false
	return c
}

// endServing is called when some of those that wait have been served. The others are served after the next poll.
func (l *eventLoop) endServing() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.signaled = false; len(l.waiting) > 0 {
		l.signalLocked()
	}
}

// recordAsks records the requests of the turn whose replies were written, or could not be. at is when the peer was last
// active, in monotime.
func (l *eventLoop) recordAsks(written bool, at int64) {
	asks := l.turn.asks
	for i, a := range asks {
		a.Answered = a.Answered && written
		l.recorder.Record(a, at)
		asks[i] = nil
	}
	l.turn.asks = asks[:0]
}
