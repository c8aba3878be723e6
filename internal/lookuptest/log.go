package lookuptest

import (
	"context"
	"log/slog"

	"github.com/hitline/hitline/internal/logtest"
)

// NewLog returns a log and a logger that writes lines of at least a level to it, without
// times.
func NewLog(level slog.Level) (*logtest.Buffer, *slog.Logger) {
	l := new(logtest.Buffer)
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
