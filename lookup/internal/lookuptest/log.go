package lookuptest

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
)

// LogBuffer is a log that a test reads while others write.
type LogBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *LogBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// Take returns the lines since the last call, without their times.
func (l *LogBuffer) Take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := strings.TrimSuffix(l.buf.String(), "\n")
	l.buf.Reset()
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

// NewLog returns a log of lines from a level on, and a logger that writes to it.
func NewLog(level slog.Level) (*LogBuffer, *slog.Logger) {
	l := new(LogBuffer)
	return l, slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

// StuckLog is a log that nobody takes one message from.
type StuckLog struct {
	slog.Handler
	message string
	Held    chan struct{} // closed when the message is there
	Free    chan struct{} // to be closed to take it
}

// NewStuckLog returns a log that holds whoever writes a message.
func NewStuckLog(message string) StuckLog {
	return StuckLog{slog.DiscardHandler, message, make(chan struct{}), make(chan struct{})}
}

// Enabled implements slog.Handler.
func (s StuckLog) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements slog.Handler.
func (s StuckLog) Handle(_ context.Context, r slog.Record) error {
	if r.Message == s.message {
		close(s.Held)
		<-s.Free
	}
	return nil
}
