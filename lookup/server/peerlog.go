package server

import (
	"context"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"github.com/hitline/hitline/internal/loglimit"
	"github.com/hitline/hitline/netproto"
)

// peerLog counts the mistakes of peers, and logs them without letting them fill the log: for each reason one
// line every loglimit.Interval, with the number of events that were suppressed before it. At level debug each event has
// a line. The counters have all of them, and are reported by Stat.
type peerLog struct {
	logger  *slog.Logger
	ends    [numReasons]loglimit.Limit
	refused loglimit.Limit // requests refused for another reason than those below

	disallowed, unauthenticated loglimit.Limit

	closed       [numReasons]atomic.Int64
	notAllowed   [netproto.NumTags]atomic.Int64
	authFailures atomic.Int64
}

// peerEvent is what a line tells. Fields may be zero.
type peerEvent struct {
	text       string
	reason     string // of a closed connection
	peer       net.Addr
	credential string
	listener   string
	err        error
	suppressed int // events before it that have no line
}

func newPeerLog(logger *slog.Logger) *peerLog { return &peerLog{logger: logger} }

// levelOf returns the level at which the end of a connection is logged. Ends that belong
// to normal operation are debug.
func levelOf(why closeReason) slog.Level {
	switch why {
	case closedByPeer, closedIdleTimeout, closedDraining:
		return slog.LevelDebug
	case closedHeartbeatTimeout, closedRevoked, closedExpired, closedPoolGone:
		return slog.LevelInfo
	}
	return slog.LevelWarn
}

// connectionClosed counts and logs why a connection ended. err has details and may be nil.
func (l *peerLog) connectionClosed(why closeReason, peer net.Addr, err error) {
	l.closed[why].Add(1)
	if why != closedByPeer {
		l.log(&l.ends[why], levelOf(why), peerEvent{text: "connection closed", reason: why.String(), peer: peer, err: err})
	}
}

// requestRefused logs why a request was answered 00.
func (l *peerLog) requestRefused(peer net.Addr, err error) {
	l.log(&l.refused, slog.LevelWarn, peerEvent{text: "request refused", peer: peer, err: err})
}

// requestNotAllowed counts and logs a request without permission. credential is empty for an anonymous peer.
func (l *peerLog) requestNotAllowed(tag netproto.Tag, peer net.Addr, credential, listener string, err error) {
	l.notAllowed[tag].Add(1)
	l.log(&l.disallowed, slog.LevelWarn, peerEvent{text: "request not allowed", peer: peer, credential: credential, listener: listener, err: err})
}

// notAuthenticated counts and logs a failed authentication. credential is that of an expired token, else the
// one that the peer had before.
func (l *peerLog) notAuthenticated(peer net.Addr, credential, listener string, err error) {
	l.authFailures.Add(1)
	l.log(&l.unauthenticated, slog.LevelWarn, peerEvent{text: "authentication failed", peer: peer, credential: credential, listener: listener, err: err})
}

// log writes a line about an event, or counts it as suppressed.
func (l *peerLog) log(limit *loglimit.Limit, level slog.Level, e peerEvent) {
	if level > slog.LevelDebug {
		suppressed, ok := limit.Admit(time.Now())
		if e.suppressed = suppressed; !ok {
			level = slog.LevelDebug
		}
	}
	l.write(level, e)
}

// write writes a line about an event.
func (l *peerLog) write(level slog.Level, e peerEvent) {
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
	add("reason", e.reason)
	if e.peer != nil {
		add("peer", e.peer.String())
	}
	add("credential", e.credential)
	add("listen", e.listener)
	if e.err != nil {
		add("error", e.err.Error())
	}
	if e.suppressed > 0 {
		attrs = append(attrs, slog.Int("suppressed", e.suppressed))
	}
	l.logger.LogAttrs(ctx, level, e.text, attrs...)
}
