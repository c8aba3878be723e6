package lookup

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"
)

// breakerLog logs when the breaker of a backend opens and when the backend has recovered. While the breaker
// is closed it logs failed calls, one every quietFor. It holds no lock while it writes: a stuck log delays
// one caller.
type breakerLog struct {
	logger  *slog.Logger
	backend string
	failing atomic.Bool // the open breaker was logged, and not that the backend has recovered

	mu         sync.Mutex
	lastFailed time.Time // when a failed call was last logged
	suppressed int       // failed calls since then
}

// quietFor is the least time between two lines about failed calls.
const quietFor = 10 * time.Second

// callEnded logs what a call has changed. state is that of the breaker after it, failure why it failed, nil
// if it did not.
func (b *breakerLog) callEnded(state gobreaker.State, failure error) {
	switch {
	case state == gobreaker.StateOpen && failure != nil && b.failing.CompareAndSwap(false, true):
		b.logger.Warn("backend is failing: lookups answer 0 until it has recovered", "backend", b.backend, "error", failure)
	case state == gobreaker.StateClosed && b.failing.CompareAndSwap(true, false):
		b.logger.Info("backend has recovered", "backend", b.backend)
	}
	if failure == nil || b.failing.Load() {
		return
	}
	if suppressed, ok := b.admit(); ok {
		b.logger.Warn("a call of the backend failed", "backend", b.backend, "error", failure, "suppressed", suppressed)
	}
}

// admit reports whether a failed call is logged, and how many were not since the last one.
func (b *breakerLog) admit() (suppressed int, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if !b.lastFailed.IsZero() && now.Sub(b.lastFailed) < quietFor {
		b.suppressed++
		return 0, false
	}
	suppressed, b.suppressed = b.suppressed, 0
	b.lastFailed = now
	return suppressed, true
}

// BackendStates returns the values that api.Stat.BackendState may have over a backend.
func BackendStates() []string {
	return []string{gobreaker.StateClosed.String(), gobreaker.StateHalfOpen.String(), gobreaker.StateOpen.String()}
}
