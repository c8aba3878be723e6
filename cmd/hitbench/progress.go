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

const (
	// maxDescribed is how many problems of a kind are described: enough to see a pattern
	// without flooding a terminal.
	maxDescribed = 10
	// statusEvery is how often status changes the last line at most: slower than figures can
	// be read at.
	statusEvery = 900 * time.Millisecond
)

// progress shows how a measurement goes: lines that stay, and below them, if w is a terminal, a
// bar or a line that changes. Safe for concurrent use.
type progress struct {
	w        io.Writer
	terminal bool
	barEvery time.Duration // how often the bar is drawn at most

	mu        sync.Mutex
	bar       *progressbar.ProgressBar // nil before the first step
	phase     string                   // of the bar
	shown     string                   // what the bar says it is about
	status    bool                     // a line of setStatus is shown
	next      time.Time                // when setStatus may change it
	described map[string]int           // problems by kind
}

// newProgress begins to show a measurement. The caller ends it with finish.
func newProgress(w io.Writer) *progress {
	f, ok := w.(*os.File)
	return &progress{w: w, terminal: ok && term.IsTerminal(int(f.Fd())), barEvery: 100 * time.Millisecond, described: map[string]int{}}
}

// step shows how many steps of a phase are done. A negative total is unknown.
func (p *progress) step(phase string, done, total int) {
	if !p.terminal {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar == nil || phase != p.phase {
		p.clear()
		p.bar, p.phase, p.shown = p.newBar(phase, total), phase, phase
	}
	_ = p.bar.Set(done) // a bar that cannot be drawn is no reason to stop
}

func (p *progress) newBar(phase string, total int) *progressbar.ProgressBar {
	return progressbar.NewOptions(total,
		progressbar.OptionSetWriter(p.w),
		progressbar.OptionSetDescription(phase),
		progressbar.OptionShowCount(),
		progressbar.OptionThrottle(p.barEvery),
		progressbar.OptionSetSpinnerChangeInterval(0), // else it starts a goroutine
		progressbar.OptionClearOnFinish(),
	)
}

// describe changes what the bar says of its phase.
func (p *progress) describe(text string) {
	if !p.terminal {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar != nil && text != p.shown { // not drawn anew for each request
		p.bar.Describe(text)
		p.shown = text
	}
}

// setStatus replaces the last line, but not too often. A measurement has this or a bar.
func (p *progress) setStatus(text string) {
	if !p.terminal {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if now.Before(p.next) {
		return
	}
	p.next = now.Add(statusEvery)
	fmt.Fprintf(p.w, "\r\x1b[K%s", text)
	p.status = true
}

// line writes a line that stays.
func (p *progress) line(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
	fmt.Fprintf(p.w, "hitbench: %s\n", text)
}

// note writes what limits the meaning of the figures.
func (p *progress) note(text string) { p.line("note: " + text) }

// problem describes one of the first problems of a kind.
func (p *progress) problem(kind, text string) {
	p.mu.Lock()
	p.described[kind]++
	n := p.described[kind]
	p.mu.Unlock()
	switch {
	case n <= maxDescribed:
		p.line(text)
	case n == maxDescribed+1:
		p.line("further problems of this kind are counted, not described")
	}
}

// finish removes the bar or the line that changes.
func (p *progress) finish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
	if p.bar != nil {
		_ = p.bar.Exit()
	}
}

// clear removes what line writes over.
func (p *progress) clear() {
	if p.bar != nil {
		_ = p.bar.Clear()
	}
	if p.status {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.status = false
	}
}
