package server

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/access"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/client"
	"github.com/hitline/hitline/netproto"
)

// engineToken is the token of tokenOf("engines").
const engineToken = "token of engines"

// startWithToken starts a server on two addresses. Peers of the first may do everything with
// engineToken and ping without it. The second is open to all.
func startWithToken(t testing.TB, cfg Config) *Server {
	t.Helper()
	service, err := lookup.NewService(blocks16)
	require.NoError(t, err)
	cfg.Loops = 2
	cfg.Listeners = []Listener{
		{Address: "tcp://127.0.0.1:0", Settings: settingsOf(t, access.Ping, tokenOf("engines", access.All))}, {Address: "tcp://127.0.0.1:0"},
	}
	server, err := New(service, cfg)
	require.NoError(t, err)
	startTest(t, server)
	return server
}

// statOfServer returns the server's figures, by way of the listener that is open to all.
func statOfServer(t testing.TB, s *Server) api.Stat {
	t.Helper()
	c, err := client.Dial(context.Background(), s.Addrs()[1], client.WithTimeout(lookuptest.Patience))
	require.NoError(t, err)
	defer c.Close()
	return statOf(t, c)
}

// Bytes of a PLAIN handshake, of ZMTP 3.0.
var (
	plainGreeting = slices.Concat(zmtpGreeting[:11], []byte("\x00PLAIN"), make([]byte, 64-17))
	plainInitiate = []byte("\x04\x1c\x08INITIATE\x0bSocket-Type\x00\x00\x00\x03REQ")

	plainVersion = zmtpAnswer[:12]
	plainRest    = []byte("PLAIN" + strings.Repeat("\x00", 15) + "\x01" + strings.Repeat("\x00", 31))
	plainWelcome = []byte("\x04\x08\x07WELCOME")
	plainReady   = zmtpAnswer[64:]
	plainRefusal = []byte("\x04\x0a\x05ERROR\x03400")
)

// plainHello returns a HELLO.
func plainHello(username, password string) []byte {
	body := slices.Concat([]byte("\x05HELLO"), []byte{byte(len(username))}, []byte(username), []byte{byte(len(password))}, []byte(password))
	return append([]byte{4, byte(len(body))}, body...)
}

// A peer whose token is right may do what its credential says.
func TestPlain(t *testing.T) {
	server := startWithToken(t, Config{})
	reset := lookuptest.Encode(nil, []byte("reset"))
	for _, username := range []string{"", "engines"} {
		p := lookuptest.DialPeer(t, server.Addrs()[0])
		p.Send(t, plainGreeting, plainHello(username, engineToken), plainInitiate, reset)
		p.Reads(t, slices.Concat(plainVersion, plainRest, plainWelcome, plainReady, lookuptest.Encode(nil, []byte{1})))
		require.Equal(t, [][]byte{{}, {1}, []byte("x")}, p.Ask(t, nil, []byte("ping"), []byte("x")))
	}
	st := statOfServer(t, server)
	require.Zero(t, st.AuthFailures)
	require.Empty(t, st.NotAllowed)
}

func TestPlainRefused(t *testing.T) {
	log, logger := lookuptest.NewLog(slog.LevelDebug)
	server := startWithToken(t, Config{Logger: logger})
	good := plainHello("", engineToken)
	wrong := strings.ToUpper(engineToken)
	for _, c := range []struct {
		name   string
		open   bool // on the listener without tokens
		sent   []byte
		want   []byte
		reason closeReason
	}{
		{"wrong token", false, slices.Concat(plainGreeting, plainHello("", wrong)), slices.Concat(plainVersion, plainRest, plainRefusal), closedCredentials},
		{"another name", false, slices.Concat(plainGreeting, plainHello("ops", engineToken)), slices.Concat(plainVersion, plainRest, plainRefusal), closedCredentials},
		{"no token", false, slices.Concat(plainGreeting, plainHello("engines", "")), slices.Concat(plainVersion, plainRest, plainRefusal), closedCredentials},
		{"all behind a wrong one", false, slices.Concat(plainGreeting, plainHello("", wrong), plainInitiate, lookuptest.Encode(nil, []byte("stat"))),
			slices.Concat(plainVersion, plainRest, plainRefusal), closedCredentials},
		{"PLAIN without tokens", true, slices.Concat(plainGreeting, good), zmtpAnswer[:64], closedMechanism},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := server.peers.closed[c.reason].Load()
			address := server.Addrs()[0]
			if c.open {
				address = server.Addrs()[1]
			}
			p := lookuptest.DialPeer(t, address)
			p.Send(t, c.sent)
			got, err := io.ReadAll(p)
			require.NoError(t, err, "closed in order")
			require.Equal(t, string(c.want), string(got))
			lookuptest.Eventually(t, "counted", func() bool { return server.peers.closed[c.reason].Load() == before+1 })
		})
	}
	st := statOfServer(t, server)
	require.EqualValues(t, 4, st.AuthFailures)
	require.EqualValues(t, 4, st.Closed["zmtp_credentials"])
	text := log.String()
	require.Contains(t, text, `"authentication failed"`)
	require.Contains(t, text, "reason=zmtp_credentials")
	for _, secret := range []string{engineToken, wrong, engineToken[:8], wrong[:8]} {
		require.NotContains(t, text, secret)
	}
}

// A NULL peer of a listener with tokens has no credential.
func TestNullBesidePlain(t *testing.T) {
	server := startWithToken(t, Config{})
	p := dialZMTP(t, server)
	require.Equal(t, [][]byte{{}, {1}, {}}, p.Ask(t, nil, []byte("ping"), nil))
	refused := p.Ask(t, nil, []byte("stat"))
	require.Equal(t, &api.Refusal{Refusal: api.RefusalNotAllowed, Request: "stat"}, refusalIn(refused[1:]), "%q", refused)
	require.Equal(t, [][]byte{{}, {0}}, p.Ask(t, nil, []byte("reset")))
	require.Equal(t, map[string]int64{"stat": 1, "reset": 1}, statOfServer(t, server).NotAllowed)
}

// The tokens count that are there when the HELLO arrives, not when the connection began.
func TestPlainAfterSetListener(t *testing.T) {
	gone := plainHello("engines", engineToken)
	for name, c := range map[string]struct {
		then  Settings
		hello []byte
		want  []byte
	}{
		"added":     {settingsOf(t, access.Ping, tokenOf("next", access.All)), plainHello("", "token of next"), plainWelcome},
		"gone":      {settingsOf(t, access.Ping, tokenOf("next", access.All)), gone, plainRefusal},
		"no tokens": {settingsOf(t, access.All), gone, plainRefusal},
	} {
		var got replies
		ses, l := fedSession(t, unstarted(t), settingsOf(t, access.Ping, tokenOf("engines", access.All)), &got)
		ses.servePlain()
		require.NoError(t, serveTurn(ses, plainGreeting))
		require.Equal(t, plainRest, got.last[len(got.last)-len(plainRest):])
		l.setSettings(c.then)
		err := serveTurn(ses, bytes.Clone(c.hello)) // it is overwritten
		require.Equal(t, string(c.want), string(got.last), name)
		if name == "added" {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, netproto.ErrCredentials, name)
		}
	}
}

// A tenant cannot name its pool over ZMTP: it begins with it.
func TestPlainTenant(t *testing.T) {
	llama, err := memoryService(lookuptest.Blocks16)
	require.NoError(t, err)
	server := startWithToken(t, Config{Pools: []ServedPool{{Name: "llama", Service: llama}}})
	require.NoError(t, server.SetListener(server.Addrs()[0], settingsOf(t, access.Ping, tokenOf("tenant", access.All, "llama"))))
	p, keys := lookuptest.DialPeer(t, server.Addrs()[0]), lookuptest.Chain("tenant", 10, 32)
	p.Send(t, plainGreeting, plainHello("", "token of tenant"), plainInitiate)
	p.Reads(t, slices.Concat(plainVersion, plainRest, plainWelcome, plainReady))
	require.Equal(t, [][]byte{{}, {1}}, p.Ask(t, nil, []byte("store"), make([]byte, 6), []byte{0, 32}, keys))
	require.EqualValues(t, 10, llama.Stat().Entries)
	require.Zero(t, statOfServer(t, server).Entries, "of the server's own pool")
}
