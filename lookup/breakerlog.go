package lookup

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"
)

// breakerLog tells the operator when a backend begins to fail and when it is well
// again, once each: a backend that goes up and down all the time is reported at
// most every quietFor. A failing that lasts is reported then.
type breakerLog struct {
	logger  *slog.Logger
	backend string

	mu       sync.Mutex
	last     error     // of the backend
	told     time.Time // of the last line about failing
	open     bool      // that line stands: its end is to be told
	silenced int       // failings since then that were not told
	lines    []func()  // to be written

	unwritten atomic.Bool // there are lines
	writing   sync.Mutex
}

// quietFor is the least time between two lines about failing.
const quietFor = 10 * time.Second

func (b *breakerLog) noteError(err error) {
	b.mu.Lock()
	b.last = err
	b.mu.Unlock()
}

// changed takes note of the breaker's state. Half-open is between two tries and of
// interest to nobody. It is called under the breaker's lock, and writes nothing itself:
// a log that is stuck would keep everybody from asking.
func (b *breakerLog) changed(from, to gobreaker.State) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	switch {
	case to == gobreaker.StateOpen && !b.open:
		if from == gobreaker.StateClosed {
			b.silenced++ // this one is told now, or when it has lasted
		}
		if !b.told.IsZero() && now.Sub(b.told) < quietFor {
			return
		}
		b.write(slog.LevelWarn, "backend is failing: lookups answer 0 until it is well again",
			"backend", b.backend, "error", b.last, "not_told", b.silenced-1)
		b.told, b.open, b.silenced = now, true, 0
	case to == gobreaker.StateClosed && b.open:
		b.write(slog.LevelInfo, "backend is well again", "backend", b.backend, "after", now.Sub(b.told).Round(time.Millisecond))
		b.open = false
	}
}

// write has a line written by tell, unless too many wait. b.mu is held.
func (b *breakerLog) write(level slog.Level, message string, args ...any) {
	const most = 16
	if len(b.lines) < most {
		b.lines = append(b.lines, func() { b.logger.Log(context.Background(), level, message, args...) })
		b.unwritten.Store(true)
	}
}

// tell writes the lines. Of those who call it one may have to wait for the log.
func (b *breakerLog) tell() {
	for b.unwritten.Load() && b.writing.TryLock() {
		b.mu.Lock()
		lines := b.lines
		b.lines = nil
		b.unwritten.Store(false)
		b.mu.Unlock()
		for _, line := range lines {
			line()
		}
		b.writing.Unlock()
	}
}

// BackendStates returns the values that api.Stat.BackendState may have over a backend.
func BackendStates() []string {
	return []string{gobreaker.StateClosed.String(), gobreaker.StateHalfOpen.String(), gobreaker.StateOpen.String()}
}
