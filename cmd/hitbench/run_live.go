package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/hitline/hitline/bench/load"
)

// live writes lines to w and, below them if w is a terminal, one that says how the
// run goes. Safe for concurrent use.
type live struct {
	w        io.Writer
	terminal bool

	mu    sync.Mutex
	shown bool // the line at the bottom
	next  time.Time
}

// liveEvery is how often the line changes at most.
const liveEvery = 900 * time.Millisecond

func newLive(w io.Writer) *live {
	f, ok := w.(*os.File)
	return &live{w: w, terminal: ok && term.IsTerminal(int(f.Fd()))}
}

// show replaces the line at the bottom, but not too often.
func (l *live) show(text string) {
	if !l.terminal {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); now.Before(l.next) {
		return
	} else {
		l.next = now.Add(liveEvery)
	}
	fmt.Fprintf(l.w, "\r\x1b[K%s", text)
	l.shown = true
}

// phase says what goes on before the measuring.
func (l *live) phase(name string, total int) {
	l.show(fmt.Sprintf("%s: %d", name, total))
}

// sample says what was measured last.
func (l *live) sample(s load.Sample) {
	l.show(fmt.Sprintf("%5.0f s  %9.0f requests/s  p50 %.1f us  p99 %.1f us  wrong %d",
		s.Elapsed, s.RequestsPerSecond, s.P50us, s.P99us, s.Wrong+s.Errors))
}

// line writes a line that stays.
func (l *live) line(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.clear()
	fmt.Fprintf(l.w, "%s\n", text)
}

// finish removes the line at the bottom.
func (l *live) finish() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.clear()
}

func (l *live) clear() {
	if l.shown {
		fmt.Fprint(l.w, "\r\x1b[K")
		l.shown = false
	}
}
