package lookup

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"
)

// breakerLog logs the first failed call of a backend, when its breaker opens and when it has
// recovered, once each. Of a backend that fails again and again it logs one call and one failing
// every quietFor. A failing that lasts is logged when that time is over.
type breakerLog struct {
	logger  *slog.Logger
	backend string

	mu         sync.Mutex
	lastError  error     // of the backend
	lastFailed time.Time // when a failing was last logged
	failing    bool      // a failing was logged, and not its end
	suppressed int       // failings since lastFailed that were not logged

	lastCallFailed  time.Time // when a failed call was last logged
	suppressedCalls int       // failed calls since lastCallFailed that were not logged

	lines []func() // to be written by flush

	hasLines atomic.Bool
	flushing sync.Mutex
}

// quietFor is the least time between two lines about failing, and between two about failed calls.
const quietFor = 10 * time.Second

// setError sets the error that the next line about failing shows.
func (b *breakerLog) setError(err error) {
	b.mu.Lock()
	b.lastError = err
	b.mu.Unlock()
}

// callFailed queues the line of a failed call. While the backend is failing there is none.
func (b *breakerLog) callFailed(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failing {
		return
	}
	now := time.Now()
	if !b.lastCallFailed.IsZero() && now.Sub(b.lastCallFailed) < quietFor {
		b.suppressedCalls++
		return
	}
	b.addLine(slog.LevelWarn, "a call of the backend failed",
		"backend", b.backend, "error", err, "suppressed", b.suppressedCalls)
	b.lastCallFailed, b.suppressedCalls = now, 0
}

// changeState queues the line of a change of the breaker's state. Half open has none. The
// breaker holds its lock meanwhile, so nothing is written here: a stuck log would stop all
// calls.
func (b *breakerLog) changeState(from, to gobreaker.State) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	switch {
	case to == gobreaker.StateOpen && !b.failing:
		if from == gobreaker.StateClosed {
			b.suppressed++ // it is logged now, or when it has lasted
		}
		if !b.lastFailed.IsZero() && now.Sub(b.lastFailed) < quietFor {
			return
		}
		b.addLine(slog.LevelWarn, "backend is failing: lookups answer 0 until it has recovered",
			"backend", b.backend, "error", b.lastError, "suppressed", b.suppressed-1)
		b.lastFailed, b.failing, b.suppressed = now, true, 0
	case to == gobreaker.StateClosed && b.failing:
		b.addLine(slog.LevelInfo, "backend has recovered", "backend", b.backend, "after", now.Sub(b.lastFailed).Round(time.Millisecond))
		b.failing = false
	}
}

// addLine queues a line for flush, unless too many are queued. b.mu is held.
func (b *breakerLog) addLine(level slog.Level, message string, args ...any) {
	const maxLines = 16
	if len(b.lines) < maxLines {
		b.lines = append(b.lines, func() { b.logger.Log(context.Background(), level, message, args...) })
		b.hasLines.Store(true)
	}
}

// flush writes the queued lines. If the log is stuck only one caller waits for it.
func (b *breakerLog) flush() {
	for b.hasLines.Load() && b.flushing.TryLock() {
		b.mu.Lock()
		lines := b.lines
		b.lines = nil
		b.hasLines.Store(false)
		b.mu.Unlock()
		for _, line := range lines {
			line()
		}
		b.flushing.Unlock()
	}
}

// BackendStates returns the values that api.Stat.BackendState may have over a backend.
func BackendStates() []string {
	return []string{gobreaker.StateClosed.String(), gobreaker.StateHalfOpen.String(), gobreaker.StateOpen.String()}
}
