package lookup

import (
	"log/slog"
	"sync"
	"time"

	"github.com/sony/gobreaker/v2"
)

// breakerLog tells the operator when a backend begins to fail and when it is well
// again, once each: a backend that goes up and down all the time is reported at
// most every quietFor.
type breakerLog struct {
	logger  *slog.Logger
	backend string

	mu       sync.Mutex
	last     error     // of the backend
	told     time.Time // of the last line about failing
	open     bool      // that line stands: its end is to be told
	silenced int       // failings since then that were not told
}

// quietFor is the least time between two lines about failing.
const quietFor = 10 * time.Second

func (b *breakerLog) noteError(err error) {
	b.mu.Lock()
	b.last = err
	b.mu.Unlock()
}

// changed takes note of the breaker's state. Half-open is between two tries and of
// interest to nobody.
func (b *breakerLog) changed(from, to gobreaker.State) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	switch {
	case from == gobreaker.StateClosed && to == gobreaker.StateOpen:
		if !b.told.IsZero() && now.Sub(b.told) < quietFor {
			b.silenced++
			return
		}
		b.logger.Warn("backend is failing: lookups answer 0 until it is well again",
			"backend", b.backend, "error", b.last, "not_told", b.silenced)
		b.told, b.open, b.silenced = now, true, 0
	case to == gobreaker.StateClosed && b.open:
		b.logger.Info("backend is well again", "backend", b.backend, "after", now.Sub(b.told).Round(time.Millisecond))
		b.open = false
	}
}
