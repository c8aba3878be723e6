package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// progress writes lines to w and, below them, a bar if w is a terminal. Safe for
// concurrent use.
type progress struct {
	mu  sync.Mutex // the bar's own lock does not cover its clearing
	w   io.Writer
	bar *progressbar.ProgressBar // nil: none

	phase string // what the bar is about, where it is about one thing after another
}

// newProgress begins a progress of total steps, or of unknown length if total is
// negative. The caller ends it with finish.
func newProgress(w io.Writer, total int) *progress {
	p := &progress{w: w}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		p.bar = progressbar.NewOptions(total,
			progressbar.OptionSetWriter(w),
			progressbar.OptionSetDescription("replay"),
			progressbar.OptionShowCount(),
			progressbar.OptionThrottle(100*time.Millisecond),
			progressbar.OptionSetSpinnerChangeInterval(0), // else it starts a goroutine
			progressbar.OptionClearOnFinish(),
		)
	}
	return p
}

// step counts one request of a replay, which came at the time at of the trace, and
// 0 flat out.
func (p *progress) step(at time.Duration) {
	if p.bar == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if phase := replayPhase(at); phase != p.phase { // drawn anew for each, so not for every request
		p.phase = phase
		p.bar.Describe(phase)
	}
	_ = p.bar.Add(1) // a bar that cannot be drawn is no reason to stop
}

// replayPhase says where in the trace a replay is, in hours, minutes and seconds.
func replayPhase(at time.Duration) string {
	if at == 0 {
		return "replay"
	}
	s := int(at.Seconds())
	return fmt.Sprintf("replay, at %d:%02d:%02d", s/3600, s/60%60, s%60)
}

// at says that so many steps of a phase are done.
func (p *progress) at(phase string, done, total int) {
	if p.bar == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if phase != p.phase {
		p.phase = phase
		p.bar.Reset()
		p.bar.ChangeMax(total)
		p.bar.Describe(phase)
	}
	_ = p.bar.Set(done) // a bar that cannot be drawn is no reason to stop
}

// line writes a line.
func (p *progress) line(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar != nil {
		_ = p.bar.Clear()
	}
	fmt.Fprintf(p.w, "%s\n", text)
}

// note writes what limits the meaning of the figures.
func (p *progress) note(text string) { p.line("hitbench: note: " + text) }

// finish removes the bar.
func (p *progress) finish() {
	if p.bar == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.bar.Clear()
	_ = p.bar.Exit()
}
