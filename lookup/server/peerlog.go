package server

import (
	"context"
	"log/slog"
	"net"
	"sync/atomic"
	"time"
)

// logInterval is the minimum time between two lines of one reason.
const logInterval = time.Second

// peerLog logs the mistakes of peers without letting them fill the log: for each reason one
// line every logInterval, with the number of suppressed events. What it logs it also keeps for
// Server.Refusals. At level debug each event has a line.
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
		l.log(&l.closed[why], levelOf(why), LoggedRefusal{Event: "connection closed", Reason: why.String()}, peer, "", err)
	}
}

// requestFailed logs why a request was answered 00.
func (l *peerLog) requestFailed(peer net.Addr, err error) {
	l.log(&l.failed, slog.LevelWarn, LoggedRefusal{Event: "request refused"}, peer, "", err)
}

// notAllowed logs a request without permission. credential is empty for an anonymous peer.
func (l *peerLog) notAllowed(peer net.Addr, credential, listener string, err error) {
	l.log(&l.disallowed, slog.LevelWarn, LoggedRefusal{Event: "request not allowed", Credential: credential}, peer, listener, err)
}

// notAuthenticated logs a failed authentication. credential is that of an expired token, else the
// one that the peer had before.
func (l *peerLog) notAuthenticated(peer net.Addr, credential, listener string, err error) {
	l.log(&l.unauthenticated, slog.LevelWarn, LoggedRefusal{Event: "authentication failed", Credential: credential}, peer, listener, err)
}

// log writes a line about r and lists it, or counts a suppressed event. What is worth no line at level info is
// not listed.
func (l *peerLog) log(limit *logLimit, level slog.Level, r LoggedRefusal, peer net.Addr, listener string, err error) {
	if level > slog.LevelDebug {
		suppressed, ok := limit.count(l.now())
		if ok {
			r.Suppressed = suppressed
			l.refusals.add(r, peer, err)
		} else {
			level = slog.LevelDebug
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
	if r.Suppressed > 0 {
		attrs = append(attrs, slog.Int64("suppressed", r.Suppressed))
	}
	l.logger.LogAttrs(ctx, level, r.Event, attrs...)
}

// flush logs and lists the number of suppressed events of each reason whose next line is due, and of
// all reasons if end is true.
func (l *peerLog) flush(end bool) {
	for why := range l.closed {
		reason := closeReason(why)
		l.logMore(&l.closed[why], levelOf(reason), LoggedRefusal{Event: "more connections closed", Reason: reason.String()}, end)
	}
	l.logMore(&l.failed, slog.LevelWarn, LoggedRefusal{Event: "more requests refused"}, end)
	l.logMore(&l.disallowed, slog.LevelWarn, LoggedRefusal{Event: "more requests not allowed"}, end)
	l.logMore(&l.unauthenticated, slog.LevelWarn, LoggedRefusal{Event: "more authentications failed"}, end)
}

// logMore is flush for one reason.
func (l *peerLog) logMore(limit *logLimit, level slog.Level, r LoggedRefusal, end bool) {
	if r.Suppressed = limit.takeSuppressed(l.now(), end); r.Suppressed == 0 {
		return
	}
	l.refusals.add(r, nil, nil)
	var attrs []slog.Attr
	if r.Reason != "" {
		attrs = append(attrs, slog.String("reason", r.Reason))
	}
	l.logger.LogAttrs(context.Background(), level, r.Event, append(attrs, slog.Int64("suppressed", r.Suppressed))...)
}

// now returns monotonic nanoseconds, at least 1, so that 0 can mean never.
func (l *peerLog) now() int64 { return int64(time.Since(l.start)) + 1 }

// logLimit allows one line every logInterval and counts the others.
type logLimit struct {
	unlogged atomic.Int64 // events that no line of the log has counted
	lastLine atomic.Int64 // when the last line was written, 0: never
}

// isDue reports whether an interval has passed since the last line, and sets lastLine to now then.
func (l *logLimit) isDue(now int64, interval time.Duration) bool {
	before := l.lastLine.Load()
	return (before == 0 || now-before >= int64(interval)) && l.lastLine.CompareAndSwap(before, now)
}

// count counts an event. ok says whether a line may be written about it, and suppressed is then the number of
// events before it that no line has counted.
func (l *logLimit) count(now int64) (suppressed int64, ok bool) {
	if l.isDue(now, logInterval) {
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
	if l.unlogged.Load() == 0 || !l.isDue(now, interval) {
		return 0
	}
	return l.unlogged.Swap(0)
}
