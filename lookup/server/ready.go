package server

import (
	"fmt"

	"github.com/hitline/hitline/backend"
)

// Ready returns nil if the server accepts connections, its backend's breaker is not open, and Config.Ready
// returns nil. Otherwise it returns ErrNotReady with the reason: not listening yet or the text of SetPreparing,
// draining, stopped, the backend, or the error of Config.Ready.
func (s *Server) Ready() error {
	if !s.running() {
		return fmt.Errorf("%w: stopped", ErrNotReady)
	}
	select {
	case <-s.booted:
	default:
		if doing := s.preparing.Load(); doing != nil {
			return fmt.Errorf("%w: %s", ErrNotReady, *doing)
		}
		return fmt.Errorf("%w: not listening yet", ErrNotReady)
	}
	switch {
	case s.Draining():
		return fmt.Errorf("%w: draining", ErrNotReady)
	case s.backend != nil && s.backend.Down():
		if failure := s.backend.Failure(); failure != nil {
			return fmt.Errorf("%w: %w", ErrNotReady, failure)
		}
		return fmt.Errorf("%w: %w: %s", ErrNotReady, backend.ErrUnavailable, s.backend.Name())
	case s.cfg.Ready == nil:
		return nil
	}
	if err := s.cfg.Ready(); err != nil {
		return fmt.Errorf("%w: %w", ErrNotReady, err)
	}
	return nil
}

// Draining reports whether Drain or Shutdown was called.
func (s *Server) Draining() bool { return s.phase.reached(phaseDraining) }

// BackendFailure returns why the latest call of the backend failed, nil if it did not. The server may be
// ready all the same.
func (s *Server) BackendFailure() error {
	if s.backend == nil {
		return nil
	}
	return s.backend.Failure()
}

// SetPreparing sets the reason that Ready gives until the server listens: what is done before Start.
func (s *Server) SetPreparing(doing string) { s.preparing.Store(&doing) }
