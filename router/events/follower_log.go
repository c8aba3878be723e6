package events

import (
	"context"
	"log/slog"
	"time"
)

// At most logBurst lines come at once and one each logEvery: a hostile engine does not fill the log.
// A state that stays, as of an engine that is away, is logged again after logRepeat.
const (
	logBurst  = 10
	logEvery  = time.Minute
	logRepeat = 10 * time.Minute
)

// sourceLog logs the state of a source when it is another than the one that was logged last. Not safe for
// concurrent use.
type sourceLog struct {
	log    *slog.Logger
	last   loggedState
	at     time.Time // when last was logged
	tokens int       // lines that may follow
	filled time.Time // when tokens was last increased

	failure string        // that ended the last connection
	retryIn time.Duration // the pause after it
}

// loggedState is what a line is about.
type loggedState struct {
	stale, complete bool
	lost            int64
	failure         string // of sourceLog, if it is stale
}

func newSourceLog(cfg *Config) *sourceLog {
	log := cfg.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &sourceLog{log: log.With("source", cfg.Name, "endpoint", cfg.Endpoint), tokens: logBurst, filled: time.Now(),
		last: loggedState{stale: true}, at: time.Now()}
}

// changed logs the state of a source. reason is that of the last change to the worse.
func (l *sourceLog) changed(s *Status, reason string) {
	now := loggedState{stale: s.Stale, complete: s.Complete, lost: s.Lost}
	if s.Stale {
		now = loggedState{stale: true, failure: l.failure}
	}
	if now == l.last && (!s.Stale || time.Since(l.at) < logRepeat) {
		return
	}
	level, text := slog.LevelInfo, "events: the source is followed"
	switch {
	case s.Stale:
		level, text = slog.LevelWarn, "events: the source is stale"
	case l.last.stale:
	case s.Complete:
		text = "events: the source is complete again"
	default:
		level, text = slog.LevelWarn, "events: the source is incomplete"
	}
	if !l.admit(level) {
		return
	}
	var args []any
	if !s.Stale {
		args = []any{"complete", s.Complete, "blocks", s.Blocks, "next", s.NextSeq}
	}
	if s.Stale || !s.Complete {
		args = append(args, "reason", reason)
	}
	if s.State == StateConnecting {
		args = append(args, "retry_in", l.retryIn.Round(time.Millisecond))
	}
	l.log.Log(context.Background(), level, text, args...)
	l.last, l.at = now, time.Now()
}

// warn logs what was left out, or what the Holder reports.
func (l *sourceLog) warn(reason string) {
	if l.admit(slog.LevelWarn) {
		l.log.Warn("events: the source goes on with an error", "reason", reason)
	}
}

// admit reports whether there may be another line. A good state is always logged: the line before it was
// about a bad one, which was admitted.
func (l *sourceLog) admit(level slog.Level) bool {
	if n := int(time.Since(l.filled) / logEvery); n > 0 {
		l.tokens, l.filled = min(l.tokens+n, logBurst), time.Now()
	}
	if l.tokens == 0 {
		return level < slog.LevelWarn
	}
	l.tokens--
	return true
}
