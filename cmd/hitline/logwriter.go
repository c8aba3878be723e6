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
	// maxQueuedLines bounds the lines that wait for the reader of the log. A server logs a
	// few lines a second at most, so the queue lasts for minutes.
	maxQueuedLines = 1024
	// maxLineLength is where a line is cut. With maxQueuedLines it bounds the memory.
	maxLineLength = 8 << 10
	// outputGrace bounds how long close waits for the queued lines to be written.
	outputGrace = time.Second
)

// logWriter writes lines on a goroutine of its own. A write to a full pipe blocks if
// nobody reads the log, and it must not block an event loop or the acceptor. If the queue
// is full, lines are dropped; the number of dropped lines is logged in their place.
type logWriter struct {
	lines   chan []byte
	dropped atomic.Int64  // since the last line was written
	closing chan struct{} // closed by close
	done    chan struct{} // closed when run has returned
}

// openLog returns a logger that writes to w. closeLog writes the queued lines, for at most
// outputGrace. Later lines are lost.
func openLog(w io.Writer, format config.Format, level slog.Leveler) (logger *slog.Logger, closeLog func()) {
	l := &logWriter{lines: make(chan []byte, maxQueuedLines), closing: make(chan struct{}), done: make(chan struct{})}
	go l.run(w, newLogger(w, format, level))
	return newLogger(l, format, level), l.close
}

// newLogger returns a logger that writes to w.
func newLogger(w io.Writer, format config.Format, level slog.Leveler) *slog.Logger {
	options := &slog.HandlerOptions{Level: level}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// logLevel returns a level of the configuration as slog has it.
func logLevel(level config.Level) slog.Level {
	return map[config.Level]slog.Level{
		"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError,
	}[level]
}

// Write queues a copy of line, cut at maxLineLength. It never blocks and returns no error.
func (l *logWriter) Write(line []byte) (int, error) {
	queued := bytes.Clone(line[:min(len(line), maxLineLength)])
	queued[len(queued)-1] = '\n' // slog's lines are not empty
	select {
	case l.lines <- queued:
	default:
		l.dropped.Add(1)
	}
	return len(line), nil
}

// run writes lines to w until close. direct is a logger over w without the queue.
func (l *logWriter) run(w io.Writer, direct *slog.Logger) {
	defer close(l.done)
	write := func(line []byte) {
		_, _ = w.Write(line) // there is no other place to report the error
		if n := l.dropped.Swap(0); n > 0 {
			direct.Warn("lines of this log were dropped, as nobody took them", "lines", n)
		}
	}
	for {
		select {
		case line := <-l.lines:
			write(line)
			continue
		case <-l.closing:
		}
		for range len(l.lines) {
			write(<-l.lines)
		}
		return
	}
}

// close waits until the queued lines are written, at most outputGrace.
func (l *logWriter) close() {
	close(l.closing)
	select {
	case <-l.done:
	case <-time.After(outputGrace):
	}
}
