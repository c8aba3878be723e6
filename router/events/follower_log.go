package events

import (
	"context"
	"log/slog"
	"time"
)

// At most logBurst changes at once and one each logEvery: a hostile engine does not fill the log.
// A failure that repeats itself, as of an engine that is away, is logged once each logRepeat.
const (
	logBurst = 10
	logEvery = time.Minute

	logRepeat = 10 * time.Minute
)

// sourceLog logs when the state of a source changes. The last line is about the present state: the line
// that ends what a WARN was about is always logged. Not safe for concurrent use.
type sourceLog struct {
	log     *slog.Logger
	tokens  int
	filled  time.Time // when tokens was last increased
	dropped int       // lines since the last

	failure  string    // the last that was logged; empty after the source was followed
	failedAt time.Time // when it was logged
	warned   bool      // a WARN was logged, and no line since then

	stale, complete bool
	lost            int64
}

func newSourceLog(log *slog.Logger, cfg *Config) *sourceLog {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &sourceLog{log: log.With("source", cfg.Name, "endpoint", cfg.Endpoint), tokens: logBurst, filled: time.Now(), stale: true}
}

// changed logs what is new in s. reason is that of the last change to the worse.
func (l *sourceLog) changed(s *Status, reason string) {
	if s.Stale == l.stale && s.Complete == l.complete && s.Lost == l.lost {
		return
	}
	wasStale := l.stale
	l.stale, l.complete, l.lost = s.Stale, s.Complete, s.Lost
	state := []any{"complete", s.Complete, "blocks", s.Blocks, "next", s.NextSeq}
	if !s.Complete {
		state = append(state, "reason", reason)
	}
	switch {
	case s.Stale && wasStale:
	case s.Stale:
		l.line(slog.LevelWarn, "events: the source is stale", "reason", reason)
	case wasStale:
		l.failure = ""
		l.line(slog.LevelInfo, "events: the source is followed", state...)
	case s.Complete:
		l.line(slog.LevelInfo, "events: the source is complete again", state...)
	default:
		l.line(slog.LevelWarn, "events: the source is incomplete", state...)
	}
}

// close ends logging: further changes come from the Follower's end.
func (l *sourceLog) close() { l.log = slog.New(slog.DiscardHandler) }

// failed logs an error that ends a connection, and with it that the source is stale.
func (l *sourceLog) failed(err error, pause time.Duration) {
	l.stale = true
	text := err.Error()
	if text == l.failure && time.Since(l.failedAt) < logRepeat {
		l.dropped++
		return
	}
	if l.line(slog.LevelWarn, "events: the source is stale", "reason", text, "retry_in", pause.Round(time.Millisecond)) {
		l.failure, l.failedAt = text, time.Now()
	}
}

// line logs unless there were too many lines, and reports whether it did. A line that ends what a
// WARN has begun is always logged.
func (l *sourceLog) line(level slog.Level, message string, args ...any) bool {
	if n := int(time.Since(l.filled) / logEvery); n > 0 {
		l.tokens, l.filled = min(l.tokens+n, logBurst), time.Now()
	}
	warn := level >= slog.LevelWarn
	if l.tokens == 0 && (warn || !l.warned) {
		l.dropped++
		return false
	}
	l.tokens = max(l.tokens-1, 0)
	l.warned = warn
	if l.dropped > 0 {
		args = append(args, "lines_left_out", l.dropped)
		l.dropped = 0
	}
	l.log.Log(context.Background(), level, message, args...)
	return true
}
