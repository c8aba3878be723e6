package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/loglimit"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup/access"
	"github.com/hitline/hitline/netproto"
)

// Of a flood one refusal of each event and reason is listed in an interval, with how many came before it.
func TestRefusalsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newPeerLog(slog.New(slog.DiscardHandler))
		peer := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 5}
		wrong := func(n int64) LoggedRefusal {
			return LoggedRefusal{Time: time.Now().UTC(), Peer: "10.0.0.1:5", Event: "request refused", Error: "wrong", Suppressed: n}
		}
		require.Empty(t, l.refusals.list())
		for range 100 {
			l.requestFailed(peer, errors.New("wrong"))
		}
		l.connectionClosed(closedFirstByte, nil, nil)
		first, closed := wrong(0), LoggedRefusal{Time: time.Now().UTC(), Event: "connection closed", Reason: "bad_first_byte"}
		require.Equal(t, []LoggedRefusal{closed, first}, l.refusals.list())

		time.Sleep(loglimit.Interval - 1)
		l.requestFailed(peer, errors.New("another"))
		require.Equal(t, []LoggedRefusal{closed, first}, l.refusals.list())
		time.Sleep(time.Nanosecond)
		l.requestFailed(peer, errors.New("wrong"))
		second := wrong(100)
		require.Equal(t, []LoggedRefusal{second, closed, first}, l.refusals.list())
		l.requestFailed(peer, errors.New("wrong"))
		l.notAllowed(peer, "reader", "tcp://a", errors.New("wrong"))
		other := LoggedRefusal{Time: time.Now().UTC(), Peer: "10.0.0.1:5", Event: "request not allowed", Credential: "reader", Error: "wrong"}
		require.Equal(t, []LoggedRefusal{other, second, closed, first}, l.refusals.list())

		time.Sleep(loglimit.Interval)
		l.flush(false) // nothing follows them
		more := LoggedRefusal{Time: time.Now().UTC(), Event: "more requests refused", Suppressed: 1}
		require.Equal(t, []LoggedRefusal{more, other, second, closed, first}, l.refusals.list())
	})
}

// The last ones are kept, the newest first, with texts of bounded length.
func TestRefusalsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newPeerLog(slog.New(slog.DiscardHandler))
		for i := range 3 * maxRefusals {
			time.Sleep(loglimit.Interval)
			l.requestFailed(nil, fmt.Errorf("%d%s", i, strings.Repeat("→", 10_000)))
		}
		list := l.refusals.list()
		require.Len(t, list, maxRefusals)
		for i, r := range list {
			require.True(t, strings.HasPrefix(r.Error, fmt.Sprintf("%d→", 3*maxRefusals-1-i)), r.Error)
			require.True(t, strings.HasSuffix(r.Error, "→…"), r.Error)
			require.True(t, utf8.ValidString(r.Error))
			require.LessOrEqual(t, len(r.Error), maxRefusalText)
			require.Greater(t, len(r.Error), maxRefusalText-4)
			require.Zero(t, r.Suppressed)
		}
		l.notAuthenticated(nil, strings.Repeat("c", 1000), "", nil)
		require.Len(t, l.refusals.list()[0].Credential, maxRefusalText)
	})
}

// What a server refuses is listed with its peer, over the memory index and over a store. Connections that
// end in normal operation are not.
func TestServerListsRefusals(t *testing.T) {
	overBoth(t, func(t *testing.T, store *lookuptest.KeyStore) {
		server := startWith(t, store, settingsOf(t, access.Ping, tokenOf("reader", access.Lookup)))
		require.Empty(t, server.Refusals())
		p, other := lookuptest.DialPeer(t, server.Addrs()[0]), lookuptest.DialPeer(t, server.Addrs()[0])
		newest := func() LoggedRefusal {
			t.Helper()
			list := server.Refusals()
			require.NotEmpty(t, list)
			require.Less(t, time.Since(list[0].Time), lookuptest.Patience)
			list[0].Time = time.Time{}
			return list[0]
		}
		auth(t, p, "reader")
		p.Ask(t, []byte("<script>"))
		require.Equal(t, LoggedRefusal{Peer: p.LocalAddr().String(), Event: "request refused", Error: newest().Error}, newest())
		require.NotEmpty(t, newest().Error)
		p.Send(t, plainOf("", netproto.TagReset))
		p.Next(t)
		require.Equal(t, LoggedRefusal{
			Peer: p.LocalAddr().String(), Event: "request not allowed", Credential: "reader", Error: "not allowed: reset; this connection may: lookup",
		}, newest())
		other.Ask(t, authFrames("nobody")...)
		require.Equal(t, LoggedRefusal{Peer: other.LocalAddr().String(), Event: "authentication failed", Error: "not authenticated: no such token"}, newest())
		require.NoError(t, p.Close()) // not listed
		other.Send(t, []byte("GET / HTTP/1.1\r\n\r\n"))
		other.ClosedWithin(t)
		lookuptest.Eventually(t, "it is listed", func() bool { return newest().Event == "connection closed" })
		require.Equal(t, LoggedRefusal{Peer: other.LocalAddr().String(), Event: "connection closed", Reason: "bad_flags", Error: newest().Error}, newest())
		require.NoError(t, server.Shutdown(context.Background()))
		require.Len(t, server.Refusals(), 4, "of a server that has stopped, too")
	})
}
