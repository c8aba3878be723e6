package server

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup/internal/monotime"
)

// What a ZMTP peer sends and gets in a handshake.
var (
	zmtpGreeting = []byte("\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03\x01NULL" + strings.Repeat("\x00", 48))
	zmtpReady    = []byte("\x04\x26\x05READY\x0bSocket-Type\x00\x00\x00\x03REQ\x08Identity\x00\x00\x00\x00")
	zmtpAnswer   = []byte("\xff\x00\x00\x00\x00\x00\x00\x00\x00\x7f\x03\x01NULL" + strings.Repeat("\x00", 48) +
		"\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x03REP")
)

// dialZMTP connects as a REQ peer.
func dialZMTP(t testing.TB, s *Server) *lookuptest.Peer {
	t.Helper()
	p := lookuptest.DialPeer(t, s.Addrs()[0])
	_, err := p.Write(append(bytes.Clone(zmtpGreeting), zmtpReady...))
	require.NoError(t, err)
	p.Reads(t, zmtpAnswer)
	return p
}

func TestZMTPBesideRaw(t *testing.T) {
	server := startServer(t, blocks16, Limits{})
	raw, keys := dialTest(t, server), lookuptest.Chain("a", 100, 32)
	require.NoError(t, raw.Store(context.Background(), coordinator.GroupRank{}, coordinator.NewHashes(keys[:64*32], 32)))
	p := dialZMTP(t, server)
	u32 := func(v uint32) []byte { return binary.BigEndian.AppendUint32(nil, v) }
	ask := [][]byte{[]byte("lookup"), u32(1600), {0, 32}, keys}
	require.Equal(t, [][]byte{{}, u32(1024)}, p.Ask(t, append([][]byte{{}}, ask...)...))
	require.Equal(t, [][]byte{[]byte("id"), {0}, {}, u32(1024)}, p.Ask(t, append([][]byte{[]byte("id"), {0}, {}}, ask...)...))
	ask[1] = u32(17)
	require.Equal(t, [][]byte{{}, {0}}, p.Ask(t, append([][]byte{{}}, ask...)...), "a client of the reference takes no second frame")
	require.Equal(t, [][]byte{{}, {0}}, p.Ask(t, nil, []byte("LOOKUP")))

	_, err := p.Write(lookuptest.Encode(ask...)) // without a delimiter
	require.NoError(t, err)
	_, err = p.Write([]byte("\x04\x06\x05ABOUT" + "\x04\x0a\x04PING\x00\x00abc"))
	require.NoError(t, err)
	p.Reads(t, []byte("\x04\x08\x04PONGabc"))
	require.Equal(t, [][]byte{{}, {1}, []byte("x")}, p.Ask(t, nil, []byte("ping"), []byte("x")))
	st := statOf(t, raw)
	require.EqualValues(t, 2, st.RequestsRefused)
}

func TestZMTPRefused(t *testing.T) {
	server := startServer(t, blocks16, Limits{HandshakeTimeout: 300 * time.Millisecond, MessageTimeout: 300 * time.Millisecond})
	idle := lookuptest.DialPeer(t, server.Addrs()[0]) // says nothing, so it is in no handshake
	t.Cleanup(func() { require.Len(t, idle.Ask(t, []byte("stat")), 2) })
	shaken := string(zmtpGreeting) + string(zmtpReady)
	for name, c := range map[string]struct {
		bytes  string
		reason closeReason
		said   string // by the server, behind its greeting
	}{
		"signature":              {shaken[:10], closedHandshakeTimeout, ""},
		"greeting":               {shaken[:64], closedHandshakeTimeout, ""},
		"command cut":            {shaken + "\x04\x0a\x04PING", closedMessageTimeout, string(zmtpAnswer[64:])},
		"PLAIN":                  {shaken[:12] + "PLAIN" + shaken[17:64], closedMechanism, ""},
		"PUB":                    {strings.ReplaceAll(shaken, "REQ", "PUB"), closedSocketType, "\x04\x25\x05ERROR\x1eonly-REQ-and-DEALER-are-served"},
		"ERROR":                  {shaken + "\x04\x0a\x05ERROR\x03not", closedPeerError, string(zmtpAnswer[64:])},
		"ERROR in a message":     {shaken + "\x01\x00" + "\x04\x0a\x05ERROR\x03not", closedPeerError, string(zmtpAnswer[64:])},
		"message cut at a PING":  {shaken + "\x01\x00" + "\x04\x07\x04PING\x00\x00", closedMessageTimeout, string(zmtpAnswer[64:]) + "\x04\x05\x04PONG"},
		"silent behind its PING": {shaken + "\x04\x07\x04PING\x00\x02", closedHeartbeatTimeout, string(zmtpAnswer[64:]) + "\x04\x05\x04PONG"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // the sweeper looks once a second
			p := lookuptest.DialPeer(t, server.Addrs()[0])
			_, err := p.Write([]byte(c.bytes))
			require.NoError(t, err)
			said, err := io.ReadAll(p)
			require.NoError(t, err, "closed in order, what was said having arrived")
			require.Equal(t, string(zmtpAnswer[:64])+c.said, string(said))
			lookuptest.Eventually(t, name, func() bool { return server.peers.closed[c.reason].Load() > 0 })
		})
	}
}

// A peer that sends one PING after the other lives, and one that then falls silent is
// gone when the TTL of its last PING is over.
func TestTTLBeginsAnewWithEachPing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := unstarted(t)
		var got replies
		ses := openSession(server, &got)
		overdue := func() closeReason { return ses.conn.overdue(monotime.Now()) }
		require.NoError(t, serveTurn(ses, append(bytes.Clone(zmtpGreeting), zmtpReady...)))
		const ttl = 1500 * time.Millisecond
		for range 10 {
			require.NoError(t, serveTurn(ses, []byte("\x04\x07\x04PING\x00\x0f")))
			require.Equal(t, "\x04\x05\x04PONG", string(got.last))
			time.Sleep(ttl)
			require.Equal(t, notClosed, overdue())
		}
		time.Sleep(time.Nanosecond)
		require.Equal(t, closedHeartbeatTimeout, overdue())
		require.NoError(t, serveTurn(ses, slices.Concat([]byte("\x04\x07\x04PING\x00\x0f"), lookuptest.Encode(nil, []byte("ping")))))
		time.Sleep(time.Hour)
		require.Equal(t, notClosed, overdue(), "what came behind the PING ended its TTL")
	})
}

// TestPingFlood sends PINGs and does not read the PONGs. Its receive buffer is the kernel's
// default: one made smaller than the window already offered makes Linux drop what the server
// sends, its acknowledgments too, and no PING gets through any more.
func TestPingFlood(t *testing.T) {
	server := startServer(t, blocks16, Limits{MaxUnsent: 64 << 10})
	p := dialZMTP(t, server)
	pings := bytes.Repeat([]byte("\x04\x17\x04PING\x00\x000123456789abcdef"), 10_000)
	var err error
	for sent := 0; err == nil; sent += len(pings) {
		require.Less(t, sent, 600<<20, "the PONGs of 600 MB of PINGs were kept")
		_, err = p.Write(pings)
	}
	lookuptest.Eventually(t, "counted", func() bool { return server.peers.closed[closedSlowReader].Load() == 1 })
}
