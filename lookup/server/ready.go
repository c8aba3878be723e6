package server

import (
	"errors"
	"fmt"
	"slices"

	"github.com/hitline/hitline/backend"
)

// ErrNotReady says that new clients had better go elsewhere. Why follows it.
var ErrNotReady = errors.New("not ready")

// Ready returns nil while new clients are welcome: the server listens, is not
// draining, and its backend is not known to fail. Otherwise it wraps ErrNotReady.
func (s *Server) Ready() error {
	if !s.running() {
		return fmt.Errorf("%w: stopped", ErrNotReady)
	}
	select {
	case <-s.booted:
	default:
		return fmt.Errorf("%w: not listening yet", ErrNotReady)
	}
	switch {
	case s.shuttingDown.Load():
		return fmt.Errorf("%w: draining", ErrNotReady)
	case s.remote != nil && s.remote.Down():
		return fmt.Errorf("%w: %w", ErrNotReady, backend.ErrUnavailable)
	}
	return nil
}

// CloseReasons returns the keys that Stat.Closed may have.
func CloseReasons() []string { return slices.Clone(reasonNames[:]) }
