package lookup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/hitline/hitline/backend"
	"github.com/hitline/hitline/internal/requesterror"
	"github.com/hitline/hitline/lookup/internal/monotime"
)

// errShortTime is the error of a call that timed out, but began with under half of its request's
// timeout left while the backend was answering others. The request had waited for a worker, or for
// rounds before. The breaker ignores it.
var errShortTime = errors.New("little time was left for the store")

// newBreaker returns the circuit breaker of a backend. It ignores blameless errors.
func newBreaker(cfg *RemoteConfig) *gobreaker.TwoStepCircuitBreaker[struct{}] {
	return gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		Timeout:     cfg.BreakerPause,
		ReadyToTrip: func(c gobreaker.Counts) bool { return int64(c.ConsecutiveFailures) >= int64(cfg.BreakerFailures) },
		IsExcluded:  blameless,
	})
}

// blameless reports whether a call says nothing of the backend's health: it ended by our own doing, or was
// refused, which may be before the store is asked. As a success it would close the breaker of a dead store.
func blameless(err error) bool {
	for _, blameless := range [...]error{backend.ErrReadOnly, context.Canceled, errShortTime, errAbandoned, requesterror.ErrFault} {
		if errors.Is(err, blameless) {
			return true
		}
	}
	return false
}

// health is what is known of a store's health: the circuit breaker, why calls fail, and when one
// has succeeded. Safe for concurrent use.
type health struct {
	backend     backend.Backend
	answerTime  time.Duration // see isAnswering
	breaker     *gobreaker.TwoStepCircuitBreaker[struct{}]
	log         breakerLog
	failure     atomic.Pointer[callError] // of the latest call, nil if it did not fail
	lastSuccess atomic.Int64              // when the backend last answered or was first asked, in monotime; 0 before
}

// callError is the error of a failed call.
type callError struct{ error }

func newHealth(store backend.Backend, cfg *RemoteConfig, logger *slog.Logger) *health {
	return &health{
		backend: store, answerTime: max(cfg.BreakerPause, cfg.Timeout), breaker: newBreaker(cfg),
		log: breakerLog{logger: logger, backend: store.Name()},
	}
}

// isDown is SharedBackend.Down.
func (h *health) isDown() bool {
	return h.breaker.State() == gobreaker.StateOpen || h.backend.Failure() != nil
}

// isClosed reports whether the breaker is closed: other calls than those of lookups and changes are then made.
func (h *health) isClosed() bool { return h.breaker.State() == gobreaker.StateClosed }

// lastFailure is SharedBackend.Failure.
func (h *health) lastFailure() error {
	if failure := h.failure.Load(); failure != nil {
		return failure.error
	}
	return h.backend.Failure()
}

// admit asks the breaker for a call. Its outcome goes to done, which is nil for some changes: see report.
func (h *health) admit(isChange bool) (done func(err error), err error) {
	h.lastSuccess.CompareAndSwap(0, monotime.Now())
	if isChange && h.breaker.State() == gobreaker.StateHalfOpen {
		return nil, nil //nolint:nilnil // see report
	}
	if done, err = h.breaker.Allow(); err == nil {
		return done, nil
	}
	if failure := h.lastFailure(); failure != nil {
		return nil, requesterror.New(backend.ErrUnavailable, "%s; it is tried again soon", failure)
	}
	return nil, fmt.Errorf("%w: %s has failed and is tried again soon", backend.ErrUnavailable, h.backend.Name())
}

// ended updates the health by the outcome of a call, and logs it.
func (h *health) ended(done func(err error), err error) {
	failed := err != nil && !blameless(err)
	switch {
	case failed:
		h.failure.Store(&callError{err})
	case err == nil:
		h.failure.Store(nil)
		h.lastSuccess.Store(monotime.Now())
	}
	h.report(done, err)
	failure := err
	if !failed && !errors.Is(err, requesterror.ErrFault) {
		failure = nil
	}
	h.log.callEnded(h.breaker.State(), failure)
}

// report reports the outcome to the breaker. While half open it admits one call at a
// time. If that were a reset, which may take a hundred times as long as a lookup, all
// lookups would be refused meanwhile. So a change does not ask to be admitted then, and
// reports its outcome only if the breaker is still half open.
func (h *health) report(done func(err error), err error) {
	if done == nil {
		if h.breaker.State() != gobreaker.StateHalfOpen {
			return
		}
		var refused error
		if done, refused = h.breaker.Allow(); refused != nil {
			return
		}
	}
	done(err)
}

// isAnswering reports whether the backend has answered some call, or was first asked, in
// the last BreakerPause or Timeout, whichever is longer. If it hangs and the workers' queue is long, each
// call begins with short time. Without this check the breaker would ignore them all.
func (h *health) isAnswering() bool {
	return monotime.Now()-h.lastSuccess.Load() < int64(h.answerTime)
}
