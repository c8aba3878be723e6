package server

import (
	"bytes"
	"context"
	"encoding/binary"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup/access"
	"github.com/hitline/hitline/lookup/client"
	"github.com/hitline/hitline/lookup/internal/monotime"
	"github.com/hitline/hitline/netproto"
)

// The defaults are those that are documented.
func TestDefaultLimits(t *testing.T) {
	want := Limits{
		MaxMessage: 64 << 20, MaxHashes: 2_000_000, MaxConnections: 4096, MaxInFlight: 1024, MaxUnsent: 1 << 20,
		MaxMemory: 128 << 20, WriteTimeout: 30 * time.Second, HandshakeTimeout: 10 * time.Second, MessageTimeout: time.Minute,
	}
	require.Equal(t, want, DefaultLimits())
	require.Equal(t, want, Limits{}.withDefaults())
	all := Limits{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	require.Equal(t, all, all.withDefaults())
}

// At each limit of a request's form it is answered, one past it the connection is
// closed for the reason that is counted.
func TestLimitsThatClose(t *testing.T) {
	server := startServer(t, blocks16, Limits{MaxMessage: 1000})
	frames := func(n int) []byte {
		return lookuptest.Encode(append([][]byte{[]byte("ping")}, make([][]byte, n-1)...)...)
	}
	envelope := func(frames, size int) []byte {
		var b []byte
		for range frames {
			b = netproto.AppendFrame(b, make([]byte, size), true)
		}
		return append(b, lookuptest.Encode(nil, []byte("ping"))...)
	}
	ping := func(size int) []byte { return lookuptest.Encode([]byte("ping"), make([]byte, size-6-9)) } // headers of 2, 2 or 9 bytes
	require.Len(t, ping(1000), 1000)
	for name, c := range map[string]struct {
		at, past []byte
		reason   closeReason
	}{
		"message":          {ping(1000), ping(1001), closedMessageLength},
		"frames":           {frames(netproto.DefaultMaxFrames), frames(netproto.DefaultMaxFrames + 1), closedFrameCount},
		"envelope":         {envelope(netproto.MaxEnvelopeFrames, 1), envelope(netproto.MaxEnvelopeFrames+1, 1), closedEnvelope},
		"address":          {envelope(1, netproto.MaxAddress), envelope(1, netproto.MaxAddress+1), closedEnvelope},
		"message, at once": {frames(2), []byte("\x02\x00\x00\x00\x00\x00\x00\x04\x00"), closedMessageLength},
	} {
		before := server.peers.closed[c.reason].Load()
		p := lookuptest.DialPeer(t, server.Addrs()[0])
		_, err := p.Write(c.at)
		require.NoError(t, err)
		require.Contains(t, p.Next(t), []byte{1}, name)
		_, err = p.Write(c.past)
		require.NoError(t, err)
		p.ClosedWithin(t)
		lookuptest.Eventually(t, name, func() bool { return server.peers.closed[c.reason].Load() == before+1 })
	}
	require.Zero(t, server.Stat().RequestsRefused)
}

// At each limit of what a request asks for it is served, one past it the answer is
// 00, which is counted, and the connection lives.
func TestLimitsThatRefuse(t *testing.T) {
	server := startServer(t, blocks16, Limits{MaxHashes: 50})
	p := lookuptest.DialPeer(t, server.Addrs()[0])
	lookup := func(n, hashLen int) [][]byte {
		tokens := binary.BigEndian.AppendUint32(nil, uint32(16*n))
		return [][]byte{[]byte("lookup"), tokens, binary.BigEndian.AppendUint16(nil, uint16(hashLen)), lookuptest.Chain("a", n, hashLen)}
	}
	for name, c := range map[string]struct{ at, past [][]byte }{
		"hashes":      {lookup(50, 32), lookup(51, 32)},
		"hash length": {lookup(2, netproto.MaxHashLen), append(lookup(2, 1)[:2:2], []byte{0, 65}, make([]byte, 130))},
		"ping":        {[][]byte{[]byte("ping"), make([]byte, netproto.MaxPing)}, [][]byte{[]byte("ping"), make([]byte, netproto.MaxPing+1)}},
	} {
		before := server.Stat().RequestsRefused
		require.NotEqual(t, []byte{0}, p.Ask(t, c.at...)[0], name)
		require.Equal(t, before, server.Stat().RequestsRefused, name)
		require.Equal(t, []byte{0}, p.Ask(t, c.past...)[0], name)
		require.Equal(t, before+1, server.Stat().RequestsRefused, name)
	}
}

// The largest lookup that the defaults allow is served, and fits a message.
func TestLargestLookup(t *testing.T) {
	if testing.Short() {
		t.Skip("sends 64 MiB")
	}
	server := startServer(t, blocks16, Limits{})
	c := dialTest(t, server)
	most := DefaultLimits().MaxHashes
	hit, err := c.Lookup(context.Background(), int64(16*most), coordinator.NewHashes(make([]byte, 32*most), 32))
	require.NoError(t, err)
	require.Zero(t, hit.Tokens)
	_, err = c.Lookup(context.Background(), int64(16*most), coordinator.NewHashes(make([]byte, 32*(most+1)), 32))
	require.ErrorIs(t, err, client.ErrRefused)
}

// A peer that sends a byte now and then is closed when its time is over, however often it sends.
func TestSlowSender(t *testing.T) {
	const limit, pause = 500 * time.Millisecond, 100 * time.Millisecond
	for name, c := range map[string]struct {
		bytes  []byte
		reason closeReason
	}{
		"request":         {netproto.AppendLookup(nil, nil, 1600, 32, 3200), closedMessageTimeout},
		"NULL handshake":  {append(bytes.Clone(zmtpGreeting), zmtpReady...), closedHandshakeTimeout},
		"PLAIN handshake": {append(bytes.Clone(plainGreeting), plainHello("", engineToken)...), closedHandshakeTimeout},
	} {
		synctest.Test(t, func(t *testing.T) {
			server := unstarted(t)
			require.NoError(t, server.SetLimits(Limits{MessageTimeout: limit, HandshakeTimeout: limit}))
			ses, _ := fedSession(t, server, settingsOf(t, access.All, tokenOf("engines", access.All)), new(replies))
			ses.servePlain()
			for i := range c.bytes[:limit/pause+1] {
				require.Equal(t, notClosed, ses.conn.overdue(monotime.Now()), name)
				require.NoError(t, serveTurn(ses, c.bytes[i:i+1]))
				time.Sleep(pause)
			}
			require.Equal(t, c.reason, ses.conn.overdue(monotime.Now()), name)
		})
	}
}
