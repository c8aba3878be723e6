package server

import (
	"context"
	"log/slog"
	"net"
	"sync/atomic"
	"time"
)

// logInterval is the minimum time between two lines of one reason.
const logInterval = 10 * time.Second

// peerLog logs the mistakes of peers without letting them fill the log: for each reason one
// line every logInterval, with the number of suppressed events. At level debug each event
// has a line.
type peerLog struct {
	logger *slog.Logger
	start  time.Time
	closed [numReasons]logLimit
	failed logLimit // requests refused for another reason than those below

	disallowed, unauthenticated logLimit

	refusals refusals
}

func newPeerLog(logger *slog.Logger) *peerLog { return &peerLog{logger: logger, start: time.Now()} }

// levelOf returns the level at which the end of a connection is logged. Ends that belong
// to normal operation are debug.
func levelOf(why closeReason) slog.Level {
	switch why {
	case closedByPeer, closedIdleTimeout, closedDraining:
		return slog.LevelDebug
	case closedHeartbeatTimeout, closedRevoked, closedExpired:
		return slog.LevelInfo
	}
	return slog.LevelWarn
}

// connectionClosed logs why a connection ended. err has details and may be nil.
func (l *peerLog) connectionClosed(why closeReason, peer net.Addr, err error) {
	if why != closedByPeer {
		l.log(&l.closed[why], levelOf(why), Refusal{Event: "connection closed", Reason: why.String()}, peer, "", err)
	}
}

// requestFailed logs why a request was answered 00.
func (l *peerLog) requestFailed(peer net.Addr, err error) {
	l.log(&l.failed, slog.LevelWarn, Refusal{Event: "request refused"}, peer, "", err)
}

// notAllowed logs a request without permission. credential is empty for an anonymous peer.
func (l *peerLog) notAllowed(peer net.Addr, credential, listener string, err error) {
	l.log(&l.disallowed, slog.LevelWarn, Refusal{Event: "request not allowed", Credential: credential}, peer, listener, err)
}

// notAuthenticated logs a failed authentication. credential is that of an expired token, else the
// one that the peer had before.
func (l *peerLog) notAuthenticated(peer net.Addr, credential, listener string, err error) {
	l.log(&l.unauthenticated, slog.LevelWarn, Refusal{Event: "authentication failed", Credential: credential}, peer, listener, err)
}

// log writes a line about r, or counts a suppressed one. What is worth a line at level info is added to the
// refusals.
func (l *peerLog) log(limit *logLimit, level slog.Level, r Refusal, peer net.Addr, listener string, err error) {
	var suppressed int64
	if level > slog.LevelDebug {
		now := l.now()
		unlogged, ok := limit.count(now)
		if suppressed = unlogged; !ok {
			level = slog.LevelDebug
		}
		if isDue(&limit.refusedAt, now, refusalInterval) {
			limit.lastRefusal.Store(l.refusals.add(r, peer, err))
		} else if last := limit.lastRefusal.Load(); last != nil { // nil: another goroutine is adding it
			last.suppressed.Add(1)
		}
	}
	ctx := context.Background()
	if !l.logger.Enabled(ctx, level) {
		return
	}
	attrs := make([]slog.Attr, 0, 6)
	add := func(key, value string) {
		if value != "" {
			attrs = append(attrs, slog.String(key, value))
		}
	}
	add("reason", r.Reason)
	if peer != nil {
		add("peer", peer.String())
	}
	add("credential", r.Credential)
	add("listen", listener)
	if err != nil {
		add("error", err.Error())
	}
	if suppressed > 0 {
		attrs = append(attrs, slog.Int64("suppressed", suppressed))
	}
	l.logger.LogAttrs(ctx, level, r.Event, attrs...)
}

// flush logs the number of suppressed events of each reason whose next line is due, and of
// all reasons if end is true.
func (l *peerLog) flush(end bool) {
	now := l.now()
	for why := range l.closed {
		if n := l.closed[why].takeSuppressed(now, end); n > 0 {
			l.logger.Log(context.Background(), levelOf(closeReason(why)), "more connections closed", "reason", closeReason(why).String(), "connections", n)
		}
	}
	for _, more := range []struct {
		limit *logLimit
		line  string
	}{
		{&l.failed, "more requests refused"}, {&l.disallowed, "more requests not allowed"},
		{&l.unauthenticated, "more authentications failed"},
	} {
		if n := more.limit.takeSuppressed(now, end); n > 0 {
			l.logger.Warn(more.line, "requests", n)
		}
	}
}

// now returns monotonic nanoseconds, at least 1, so that 0 can mean never.
func (l *peerLog) now() int64 { return int64(time.Since(l.start)) + 1 }

// logLimit allows one line every logInterval and counts the others, and one refusal every refusalInterval.
type logLimit struct {
	unlogged    atomic.Int64 // events that no line of the log has counted
	lastLine    atomic.Int64 // when the last line was written, 0: never
	refusedAt   atomic.Int64 // when the last refusal was added, 0: never
	lastRefusal atomic.Pointer[listedRefusal]
}

// isDue reports whether an interval has passed since last, and sets last to now then.
func isDue(last *atomic.Int64, now int64, interval time.Duration) bool {
	before := last.Load()
	return (before == 0 || now-before >= int64(interval)) && last.CompareAndSwap(before, now)
}

// count counts an event. ok says whether a line may be written about it, and suppressed is then the number of
// events before it that no line has counted.
func (l *logLimit) count(now int64) (suppressed int64, ok bool) {
	if isDue(&l.lastLine, now, logInterval) {
		return l.unlogged.Swap(0), true
	}
	l.unlogged.Add(1)
	return 0, false
}

// takeSuppressed returns the number of events since the last line if the next one is due or end is true.
// Otherwise it returns 0. They count as logged.
func (l *logLimit) takeSuppressed(now int64, end bool) int64 {
	interval := logInterval
	if end {
		interval = 0
	}
	if l.unlogged.Load() == 0 || !isDue(&l.lastLine, now, interval) {
		return 0
	}
	return l.unlogged.Swap(0)
}
