package server

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// phase is how far a server is on the way to its end. It only moves on:
//
//	serving ──► draining ──► closingZMTP        Drain
//	   │           │              │
//	   └───────────┴──────────────┴──► shutdown ──► closingAll      Shutdown
type phase uint32

const (
	phaseServing     phase = iota
	phaseDraining          // everything is served, but Ready and pings say that the server is about to stop
	phaseClosingZMTP       // ZMTP connections are closed, each after a pause
	phaseShutdown          // listening ends
	phaseClosingAll        // nobody listens: each connection is closed as soon as that loses nothing
)

// currentPhase is the phase that a server is in.
type currentPhase struct{ atomic.Uint32 }

// reached reports whether the server is in a phase or a later one.
func (c *currentPhase) reached(p phase) bool { return phase(c.Load()) >= p }

// advance begins a phase, unless it has been reached.
func (c *currentPhase) advance(to phase) {
	for before := c.Load(); before < uint32(to) && !c.CompareAndSwap(before, uint32(to)); before = c.Load() {
	}
}

// lifecycle is what Start and Shutdown share. Shutdown may be called at any time. During Start it makes Start fail and
// leave nothing running.
type lifecycle struct {
	preparing atomic.Pointer[string] // what is done before Start, nil if that is not known

	mu          sync.Mutex
	started     bool               // Start was called
	cancelStart context.CancelFunc // interrupts Start
	startEnded  chan struct{}      // closed when Start has returned

	booted   chan struct{} // closed when the server listens
	stopOnce sync.Once
	done     chan struct{} // closed when the loops have ended
	err      error         // why they ended, nil if by Shutdown; read after done
}

func newLifecycle() *lifecycle {
	return &lifecycle{startEnded: make(chan struct{}), booted: make(chan struct{}), done: make(chan struct{})}
}

// beginStart marks the server as started. It returns a context that ends with ctx or when
// Shutdown is called.
func (s *Server) beginStart(ctx context.Context) (context.Context, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.phase.reached(phaseShutdown):
		return nil, ErrServerClosed
	case s.started:
		return nil, errStarted
	}
	s.started = true
	ctx, s.cancelStart = context.WithCancel(ctx)
	return ctx, nil
}

// beginShutdown interrupts Start. It returns whether Start was called.
func (s *Server) beginShutdown() (started bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.phase.advance(phaseShutdown)
	if s.started {
		s.cancelStart()
	}
	return s.started
}

// errStarted is the error of a second Start.
var errStarted = errors.New("the server was started before; make another one")

// Done returns a channel that is closed when the server has stopped, by Shutdown or by
// itself, or has failed to start. Err then says why.
func (s *Server) Done() <-chan struct{} { return s.done }

// Err returns nil if the server stopped because of Shutdown. Otherwise it wraps ErrStopped
// and the reason, also after a later Shutdown. It is valid after Done is closed.
func (s *Server) Err() error {
	if s.err != nil {
		return fmt.Errorf("%w: %w", ErrStopped, s.err)
	}
	return nil
}

// running reports whether stop has not ended yet.
func (s *Server) running() bool {
	select {
	case <-s.done:
		return false
	default:
		return true
	}
}
