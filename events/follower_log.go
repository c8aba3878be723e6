package events

import (
	"context"
	"log/slog"
	"time"
)

// At most logBurst lines at once and one each logEvery: an engine that is away, or a hostile
// one, does not fill the log.
const (
	logBurst = 10
	logEvery = time.Minute
)

// sourceLog logs when the state of a source changes. Not safe for concurrent use.
type sourceLog struct {
	log     *slog.Logger
	tokens  int
	filled  time.Time // when tokens was last increased
	dropped int       // lines since the last

	stale, complete bool
	holes           int64
}

func newSourceLog(log *slog.Logger, cfg *Config) *sourceLog {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	endpoint := cfg.endpoint()
	return &sourceLog{log: log.With("source", cfg.Name, "endpoint", endpoint), tokens: logBurst, filled: time.Now(), stale: true}
}

// changed logs what is new in s. reason is that of the last change to the worse.
func (l *sourceLog) changed(s *Status, reason string) {
	if s.Stale == l.stale && s.Complete == l.complete && s.Holes == l.holes {
		return
	}
	wasStale := l.stale
	l.stale, l.complete, l.holes = s.Stale, s.Complete, s.Holes
	state := []any{"complete", s.Complete, "blocks", s.Blocks, "next", s.NextSeq}
	if !s.Complete {
		state = append(state, "reason", reason)
	}
	switch {
	case s.Stale && wasStale:
	case s.Stale:
		l.line(slog.LevelWarn, "events: the source is stale", "reason", reason)
	case wasStale:
		l.line(slog.LevelInfo, "events: the source is followed", state...)
	case s.Complete:
		l.line(slog.LevelInfo, "events: the source is complete again", state...)
	default:
		l.line(slog.LevelWarn, "events: the source is incomplete", state...)
	}
}

// failed logs an error that ends a connection, and with it that the source is stale.
func (l *sourceLog) failed(err error, pause time.Duration) {
	l.stale = true
	l.line(slog.LevelWarn, "events: the source is stale", "reason", err, "retry_in", pause.Round(time.Millisecond))
}

// line logs unless there were too many lines.
func (l *sourceLog) line(level slog.Level, message string, args ...any) {
	if n := int(time.Since(l.filled) / logEvery); n > 0 {
		l.tokens, l.filled = min(l.tokens+n, logBurst), time.Now()
	}
	if l.tokens == 0 {
		l.dropped++
		return
	}
	l.tokens--
	if l.dropped > 0 {
		args = append(args, "lines_left_out", l.dropped)
		l.dropped = 0
	}
	l.log.Log(context.Background(), level, message, args...)
}
