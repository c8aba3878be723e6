package server

import (
	"context"
	"log/slog"
	"net"
	"time"

	"github.com/hitline/hitline/internal/loglimit"
)

// peerLog logs the mistakes of peers without letting them fill the log: for each reason one
// line every loglimit.Interval, with the number of suppressed events. What it logs it also keeps for
// Server.Refusals. At level debug each event has a line.
type peerLog struct {
	logger *slog.Logger
	closed [numReasons]loglimit.Limit
	failed loglimit.Limit // requests refused for another reason than those below

	disallowed, unauthenticated loglimit.Limit

	refusals refusals
}

func newPeerLog(logger *slog.Logger) *peerLog { return &peerLog{logger: logger} }

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
func (l *peerLog) log(limit *loglimit.Limit, level slog.Level, r LoggedRefusal, peer net.Addr, listener string, err error) {
	if level > slog.LevelDebug {
		suppressed, ok := limit.Admit(time.Now())
		if ok {
			r.Suppressed = int64(suppressed)
			l.refusals.add(r, peer, err)
		} else {
			level = slog.LevelDebug
		}
	}
	l.write(level, r, peer, listener, err)
}

// write writes a line about r.
func (l *peerLog) write(level slog.Level, r LoggedRefusal, peer net.Addr, listener string, err error) {
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
func (l *peerLog) logMore(limit *loglimit.Limit, level slog.Level, r LoggedRefusal, end bool) {
	if r.Suppressed = int64(limit.Take(time.Now(), end)); r.Suppressed > 0 {
		l.refusals.add(r, nil, nil)
		l.write(level, r, nil, "", nil)
	}
}
