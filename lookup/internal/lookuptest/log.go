package lookuptest

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
)

// LogBuffer is a log in memory. It is safe for concurrent use.
type LogBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write implements io.Writer.
func (l *LogBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// Take removes and returns the lines written since the last call.
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

// NewLog returns a log and a logger that writes lines of at least a level to it, without
// times.
func NewLog(level slog.Level) (*LogBuffer, *slog.Logger) {
	l := new(LogBuffer)
	return l, slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

// StuckLog is a log handler that blocks at one message.
type StuckLog struct {
	slog.Handler
	message string
	Held    chan struct{} // closed when the message is logged
	Free    chan struct{} // the test closes it to unblock the logger
}

// NewStuckLog returns a handler that blocks whoever logs message.
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
