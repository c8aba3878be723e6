package main

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"sync/atomic"
	"time"
)

const (
	// maxQueuedLines bounds the lines that wait for the reader of the log. A server logs a
	// few lines a second at most, so the queue lasts for minutes.
	maxQueuedLines = 1024
	// maxQueuedBytes bounds the sum of their lengths.
	maxQueuedBytes = 1 << 20
	// maxLineLength bounds a line. Of a longer one a warning has the first maxExcerpt bytes.
	maxLineLength = 8 << 10
	// maxExcerpt is such that the warning has at most maxLineLength bytes, although quoting
	// the text takes up to two bytes for each.
	maxExcerpt = 2 << 10
	// outputGrace bounds how long close waits for the queued lines to be written.
	outputGrace = time.Second
)

// logWriter writes lines on a goroutine of its own. A write to a full pipe blocks if
// nobody reads the log, and it must not block an event loop or the acceptor. If the queue
// is full, lines are dropped; the number of dropped lines is logged in their place.
type logWriter struct {
	lines   chan []byte
	bytes   atomic.Int64  // the sum of the lengths of lines
	dropped atomic.Int64  // since the last line was written
	excerpt *slog.Logger  // writes to the queue
	closing chan struct{} // closed by close
	done    chan struct{} // closed when run has returned
}

// openLog returns a logger that writes to w as settings say. closeLog writes the queued
// lines, for at most outputGrace. Later lines are lost.
func openLog(w io.Writer, settings *logSettings) (logger *slog.Logger, closeLog func()) {
	l := &logWriter{lines: make(chan []byte, maxQueuedLines), closing: make(chan struct{}), done: make(chan struct{})}
	l.excerpt = newLogger(writerFunc(l.enqueue), settings)
	go l.run(w, newLogger(w, settings))
	return slog.New(&queueHandler{newLogger(l, settings).Handler(), l}), l.close
}

// queueHandler drops records while the queue of its logWriter is full. It does so before
// they are formatted, which costs more than all else that an event loop does to refuse a
// request.
type queueHandler struct {
	slog.Handler
	writer *logWriter
}

// Enabled is false if the queue is full. It then counts a dropped line.
func (h *queueHandler) Enabled(ctx context.Context, level slog.Level) bool {
	if !h.Handler.Enabled(ctx, level) {
		return false
	}
	if h.writer.full() {
		h.writer.dropped.Add(1)
		return false
	}
	return true
}

func (h *queueHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &queueHandler{h.Handler.WithAttrs(attrs), h.writer}
}

func (h *queueHandler) WithGroup(name string) slog.Handler {
	return &queueHandler{h.Handler.WithGroup(name), h.writer}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// full reports whether a line may not be queued. It takes no lock.
func (l *logWriter) full() bool {
	return len(l.lines) == cap(l.lines) || l.bytes.Load() > maxQueuedBytes-maxLineLength
}

// Write queues a copy of line, or a warning if it is too long. It never blocks and returns
// no error.
func (l *logWriter) Write(line []byte) (int, error) {
	if len(line) <= maxLineLength {
		return l.enqueue(line)
	}
	l.excerpt.Warn("a line of this log was too long", "bytes", len(line), "beginning", string(line[:maxExcerpt]))
	return len(line), nil
}

// enqueue queues a copy of line, which has at most maxLineLength bytes.
func (l *logWriter) enqueue(line []byte) (int, error) {
	size := int64(len(line))
	for { // no sum is ever too large: a line that has room is not dropped for another that has none
		queued := l.bytes.Load()
		if queued+size > maxQueuedBytes {
			l.dropped.Add(1)
			return len(line), nil
		}
		if l.bytes.CompareAndSwap(queued, queued+size) {
			break
		}
	}
	select {
	case l.lines <- bytes.Clone(line):
	default:
		l.bytes.Add(-size)
		l.dropped.Add(1)
	}
	return len(line), nil
}

// run writes lines to w until close. direct is a logger over w without the queue.
func (l *logWriter) run(w io.Writer, direct *slog.Logger) {
	defer close(l.done)
	write := func(line []byte) {
		l.bytes.Add(-int64(len(line)))
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
