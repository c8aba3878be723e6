// Package loglimit keeps clients from filling a log.
package loglimit

import (
	"sync"
	"time"
)

// Interval is the least time between two lines.
const Interval = time.Second

// Limit admits a line each Interval and counts the others. Safe for concurrent use. The zero value is ready.
type Limit struct {
	mu         sync.Mutex
	next       time.Time // when a line may follow
	suppressed int       // since the last
}

// Admit reports whether a line may be written now, and how many were suppressed since the last.
func (l *Limit) Admit(now time.Time) (suppressed int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Before(l.next) {
		l.suppressed++
		return 0, false
	}
	suppressed, l.suppressed = l.suppressed, 0
	l.next = now.Add(Interval)
	return suppressed, true
}
