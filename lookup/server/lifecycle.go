package server

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/hitline/hitline/internal/requesterror"
)

// lifecycle is the state that Start, Drain and Shutdown share: new, starting, serving, draining, stopped.
// Shutdown may be called at any time. During Start it makes Start fail and leave nothing
// running.
type lifecycle struct {
	shuttingDown atomic.Bool            // Shutdown was called; set under mu
	closing      atomic.Uint32          // which connections are closed now that have nothing unanswered
	preparing    atomic.Pointer[string] // what is done before Start, nil if that is not known

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
func (l *lifecycle) beginStart(ctx context.Context) (context.Context, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.shuttingDown.Load():
		return nil, ErrServerClosed
	case l.started:
		return nil, errStarted
	}
	l.started = true
	ctx, l.cancelStart = context.WithCancel(ctx)
	return ctx, nil
}

// beginShutdown marks the server as shutting down and interrupts Start. It returns whether
// Start was called.
func (l *lifecycle) beginShutdown() (started bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shuttingDown.Store(true)
	if l.started {
		l.cancelStart()
	}
	return l.started
}

// recovering calls f for the server itself. A panic in it is logged and returned.
func (s *Server) recovering(what string, f func()) error {
	err := requesterror.Run(f)
	if err != nil {
		s.cfg.Logger.Error("the server goes on after a fault", "in", what, "error", err)
	}
	return err
}

// errStarted is the error of a second Start.
var errStarted = errors.New("the server was started before; make another one")
