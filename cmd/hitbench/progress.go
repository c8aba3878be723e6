package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/hitline/hitline/internal/printable"
)

const (
	// maxDescribed is how many problems of a kind are described: enough to see a pattern
	// without flooding a terminal.
	maxDescribed = 10
	// statusEvery is how often the last line changes at most: as fast as figures can be read.
	statusEvery = 200 * time.Millisecond
	// logEvery is how often a line says where a measurement is if there is no terminal.
	logEvery = 5 * time.Second
)

// progress shows how a measurement goes: lines that stay, and below them, if w is a terminal, a
// line that changes. Otherwise what that would show is a line that stays, now and then. Safe for concurrent use.
type progress struct {
	w        io.Writer
	terminal bool

	mu        sync.Mutex
	phase     string         // of the line that changes; empty: there is none
	next      time.Time      // when it may change within its phase, or be a line that stays
	described map[string]int // problems by kind
}

// newProgress begins to show a measurement. The caller ends it with finish.
func newProgress(w io.Writer) *progress {
	f, ok := w.(*os.File)
	terminal := ok && term.IsTerminal(int(f.Fd()))
	return &progress{w: w, terminal: terminal, next: time.Now().Add(logEvery), described: map[string]int{}}
}

// step shows how many steps of a phase are done.
func (p *progress) step(phase string, done, total int) {
	p.status(phase, fmt.Sprintf("%s: %d of %d", phase, done, total))
}

// status replaces the last line, but within a phase not too often.
func (p *progress) status(phase, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if !p.terminal {
		if !now.Before(p.next) {
			p.next = now.Add(logEvery)
			fmt.Fprintf(p.w, "hitbench: %s\n", text)
		}
		return
	}
	if phase == p.phase && now.Before(p.next) {
		return
	}
	p.phase, p.next = phase, now.Add(statusEvery)
	fmt.Fprintf(p.w, "\r\x1b[K%s", text)
}

// line writes a line that stays.
func (p *progress) line(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
	fmt.Fprintf(p.w, "hitbench: %s\n", printable.Text(text)) // a server may have worded it
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

// finish removes the line that changes.
func (p *progress) finish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
}

// clear removes the line that changes. The caller holds mu.
func (p *progress) clear() {
	if p.phase != "" {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.phase = ""
	}
}
