package main

import (
	"bytes"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/hitline/hitline/cmd/hitline/internal/config"
)

const (
	// backlog is how many lines may wait for whoever reads the log: the few lines a
	// second that a server tells at most make minutes.
	backlog = 1024
	// lastLines is how long the end waits for them to be written.
	lastLines = time.Second
)

// logWriter writes lines on a goroutine of its own. A log that nobody reads, a full
// pipe, stops whoever writes to it: event loops and accepting must not be among them.
// What does not fit the backlog is dropped, and told in its place.
type logWriter struct {
	lines   chan []byte
	dropped atomic.Int64
	ending  chan struct{}
	ended   chan struct{}
}

// openLog returns a logger that writes to w as cfg says. closeLog waits for what is
// left, for a moment; what is logged after that is lost.
func openLog(w io.Writer, cfg config.Log) (logger *slog.Logger, closeLog func()) {
	l := &logWriter{lines: make(chan []byte, backlog), ending: make(chan struct{}), ended: make(chan struct{})}
	go l.run(w, newLogger(w, cfg))
	return newLogger(l, cfg), l.close
}

// Write takes a line and never fails.
func (l *logWriter) Write(line []byte) (int, error) {
	select {
	case l.lines <- bytes.Clone(line):
	default:
		l.dropped.Add(1)
	}
	return len(line), nil
}

// run writes lines to w until the end. direct logs there, too.
func (l *logWriter) run(w io.Writer, direct *slog.Logger) {
	defer close(l.ended)
	write := func(line []byte) {
		_, _ = w.Write(line) // there is nowhere else to tell that it failed
		if n := l.dropped.Swap(0); n > 0 {
			direct.Warn("lines of this log were dropped, as nobody took them", "lines", n)
		}
	}
	for {
		select {
		case line := <-l.lines:
			write(line)
			continue
		case <-l.ending:
		}
		for range len(l.lines) {
			write(<-l.lines)
		}
		return
	}
}

// close writes what is left, unless nobody takes it.
func (l *logWriter) close() {
	close(l.ending)
	select {
	case <-l.ended:
	case <-time.After(lastLines):
	}
}
