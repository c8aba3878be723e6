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
		l.log(&l.closed[why], levelOf(why), "connection closed", why.String(), peer, err)
	}
}

// requestFailed logs why a request was answered 00.
func (l *peerLog) requestFailed(peer net.Addr, err error) {
	l.log(&l.failed, slog.LevelWarn, "request refused", "", peer, err)
}

// notAllowed logs a request without permission. credential is empty for an anonymous peer.
func (l *peerLog) notAllowed(peer net.Addr, credential, listener string, err error) {
	l.log(&l.disallowed, slog.LevelWarn, "request not allowed", "", peer, err,
		slog.String("credential", credential), slog.String("listen", listener))
}

// notAuthenticated logs a failed authentication. credential is that of an expired token, else the
// one that the peer had before.
func (l *peerLog) notAuthenticated(peer net.Addr, credential, listener string, err error) {
	l.log(&l.unauthenticated, slog.LevelWarn, "authentication failed", "", peer, err,
		slog.String("credential", credential), slog.String("listen", listener))
}

// log writes a line, or counts a suppressed one.
func (l *peerLog) log(limit *logLimit, level slog.Level, message, reason string, peer net.Addr, err error, more ...slog.Attr) {
	var suppressed int64
	if level > slog.LevelDebug {
		var ok bool
		if suppressed, ok = limit.allow(l.now()); !ok {
			level = slog.LevelDebug
		}
	}
	ctx := context.Background()
	if !l.logger.Enabled(ctx, level) {
		return
	}
	attrs := make([]slog.Attr, 0, 4+len(more))
	if reason != "" {
		attrs = append(attrs, slog.String("reason", reason))
	}
	if peer != nil {
		attrs = append(attrs, slog.String("peer", peer.String()))
	}
	for _, a := range more {
		if a.Value.String() != "" {
			attrs = append(attrs, a)
		}
	}
	if err != nil {
		attrs = append(attrs, slog.String("error", err.Error()))
	}
	if suppressed > 0 {
		attrs = append(attrs, slog.Int64("suppressed", suppressed))
	}
	l.logger.LogAttrs(ctx, level, message, attrs...)
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

// logLimit allows one line every logInterval and counts the others.
type logLimit struct {
	last       atomic.Int64 // when the last line was written, 0: never
	suppressed atomic.Int64 // events since then
}

// allow reports whether a line may be written, and returns and resets the number of events
// suppressed since the last one.
func (l *logLimit) allow(now int64) (suppressed int64, ok bool) {
	last := l.last.Load()
	if last != 0 && now-last < int64(logInterval) || !l.last.CompareAndSwap(last, now) {
		l.suppressed.Add(1)
		return 0, false
	}
	return l.suppressed.Swap(0), true
}

// takeSuppressed returns and resets the number of suppressed events if the next line is due
// or end is true. Otherwise it returns 0.
func (l *logLimit) takeSuppressed(now int64, end bool) int64 {
	last := l.last.Load()
	if l.suppressed.Load() == 0 || !end && now-last < int64(logInterval) || !l.last.CompareAndSwap(last, now) {
		return 0
	}
	return l.suppressed.Swap(0)
}
