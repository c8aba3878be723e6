package server

import (
	"context"
	"log/slog"
	"net"
	"sync/atomic"
	"time"
)

// quietFor is the least time between two lines of one reason.
const quietFor = 10 * time.Second

// peerLog tells the operator of peers that do wrong, without letting them fill the
// log: of each reason one line every quietFor, with the number of those before it
// that were not told. At level debug each is told.
type peerLog struct {
	logger *slog.Logger
	start  time.Time
	closed [numReasons]quiet
	failed quiet
}

func newPeerLog(logger *slog.Logger) *peerLog { return &peerLog{logger: logger, start: time.Now()} }

// levelOf is how loud the end of a connection is: those that belong to a quiet day
// are for who debugs.
func levelOf(why closeReason) slog.Level {
	switch why {
	case closedByPeer, closedIdleTimeout, closedDraining:
		return slog.LevelDebug
	case closedHeartbeatTimeout:
		return slog.LevelInfo
	}
	return slog.LevelWarn
}

// connectionClosed tells why a connection ended. err says more and may be nil.
func (l *peerLog) connectionClosed(why closeReason, peer net.Addr, err error) {
	if why != closedByPeer {
		l.tell(&l.closed[why], levelOf(why), "connection closed", why.String(), peer, err)
	}
}

// requestFailed tells why a request was answered 00.
func (l *peerLog) requestFailed(peer net.Addr, err error) {
	l.tell(&l.failed, slog.LevelWarn, "request refused", "", peer, err)
}

// tell writes a line, or counts that it was not written.
func (l *peerLog) tell(q *quiet, level slog.Level, message, reason string, peer net.Addr, err error) {
	var silent int64
	if level > slog.LevelDebug {
		var ok bool
		if silent, ok = q.allow(l.now()); !ok {
			level = slog.LevelDebug
		}
	}
	ctx := context.Background()
	if !l.logger.Enabled(ctx, level) {
		return
	}
	attrs := make([]slog.Attr, 0, 4)
	if reason != "" {
		attrs = append(attrs, slog.String("reason", reason))
	}
	if peer != nil {
		attrs = append(attrs, slog.String("peer", peer.String()))
	}
	if err != nil {
		attrs = append(attrs, slog.String("error", err.Error()))
	}
	if silent > 0 {
		attrs = append(attrs, slog.Int64("not_told", silent))
	}
	l.logger.LogAttrs(ctx, level, message, attrs...)
}

// flush tells the numbers of those that were not told and that no further line has
// made known for as long as lines are kept back; of all of them at the end.
func (l *peerLog) flush(end bool) {
	now := l.now()
	for why := range l.closed {
		if n := l.closed[why].overdue(now, end); n > 0 {
			l.logger.Log(context.Background(), levelOf(closeReason(why)), "more connections closed", "reason", closeReason(why).String(), "connections", n)
		}
	}
	if n := l.failed.overdue(now, end); n > 0 {
		l.logger.Warn("more requests refused", "requests", n)
	}
}

// now is a clock that nobody sets. It begins at 1, so that 0 is never.
func (l *peerLog) now() int64 { return int64(time.Since(l.start)) + 1 }

// quiet lets one line every quietFor through and counts the others.
type quiet struct {
	told   atomic.Int64 // when the last line was written, 0: never
	silent atomic.Int64 // events since then
}

// allow tells whether a line may be written, and how many events have had none
// since the last one.
func (q *quiet) allow(now int64) (silent int64, ok bool) {
	last := q.told.Load()
	if last != 0 && now-last < int64(quietFor) || !q.told.CompareAndSwap(last, now) {
		q.silent.Add(1)
		return 0, false
	}
	return q.silent.Swap(0), true
}

// overdue returns the number of events without a line when the next line may be
// written, or at the end, and 0 otherwise.
func (q *quiet) overdue(now int64, end bool) int64 {
	last := q.told.Load()
	if q.silent.Load() == 0 || !end && now-last < int64(quietFor) || !q.told.CompareAndSwap(last, now) {
		return 0
	}
	return q.silent.Swap(0)
}
