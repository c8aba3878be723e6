package load

import (
	"crypto/tls"
	"testing"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/wire"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/certtest"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/access"
	"github.com/hitline/hitline/lookup/server"
)

// theToken is the one that serveTokens takes.
const theToken = "correct-horse-battery"

// serveTokens starts a real server in this process on a TCP and a TLS address, at which nothing
// is allowed without theToken.
func serveTokens(t *testing.T, cfg *tls.Config) (plain, secure string) {
	t.Helper()
	service, err := lookup.NewService(lookup.ServiceConfig{Pool: coordinator.Pool{HashBlockSize: 16}})
	require.NoError(t, err)
	rules, err := access.NewRules(0, []access.Credential{{Name: "bench", Digest: access.DigestOf([]byte(theToken)), Permissions: access.All}})
	require.NoError(t, err)
	addrs := serveOn(t, service, server.Config{Listeners: []server.Listener{
		{Address: anywhere, Settings: server.Settings{Rules: rules}},
		{Address: "tls://127.0.0.1:0", Settings: server.Settings{Rules: rules, TLS: cfg}},
	}})
	return addrs[0], addrs[1]
}

// With the token every request is served, in clear and over TLS; without it none is.
func TestRunWithToken(t *testing.T) {
	ca := certtest.NewCA("load")
	plain, secure := serveTokens(t, &tls.Config{Certificates: []tls.Certificate{ca.Leaf("127.0.0.1")}})
	for name, addr := range map[string]string{"clear": plain, "TLS": secure} {
		for loop, o := range map[string]Options{
			"closed":    {Connections: 2},
			"pipelined": {Connections: 3, Pipeline: 8, Stores: 0.2, Evicts: 0.1},
			"long":      {Hashes: Lengths{Least: 10_000, Most: 10_000}},
		} {
			t.Run(name+" "+loop, func(t *testing.T) {
				o.Connect, o.Requests, o.HitShare, o.Timeout = addr, 300, 0.5, patience
				o.TLS = &tls.Config{RootCAs: ca.Pool()}
				o.Token = func() string { return theToken }
				r, err := Run(t.Context(), o)
				require.NoError(t, err)
				assert.Zero(t, r.Wrong+r.Refused)
				assert.EqualValues(t, 300, r.Requests)
			})
		}
		o := Options{Connect: addr, Requests: 1, Timeout: patience, TLS: &tls.Config{RootCAs: ca.Pool()}}
		_, err := Run(t.Context(), o)
		require.ErrorIs(t, err, measure.ErrAnswer)
		require.ErrorContains(t, err, "not allowed")
		o.Token = func() string { return "wrong-horse-battery" }
		_, err = Run(t.Context(), o)
		require.ErrorIs(t, err, measure.ErrAnswer)
		require.ErrorContains(t, err, "auth was answered a refusal (00)")
		require.NotContains(t, err.Error(), "wrong-horse")
	}
	_, err := Run(t.Context(), Options{Connect: secure, Requests: 1, Timeout: patience})
	require.ErrorIs(t, err, measure.ErrLost, "the system's roots do not have this CA")
}

// In ZMTP the token goes by the PLAIN mechanism.
func TestRunWithTokenByPLAIN(t *testing.T) {
	plain, _ := serveTokens(t, &tls.Config{Certificates: []tls.Certificate{certtest.NewCA("load").Leaf("127.0.0.1")}})
	for name, o := range map[string]Options{"req": {}, "dealer": {Pipeline: 4}} {
		t.Run(name, func(t *testing.T) {
			o.Connect, o.Dialect, o.Requests, o.Timeout = plain, wire.ZMTP, 100, patience
			_, err := Run(t.Context(), o)
			require.ErrorIs(t, err, measure.ErrAnswer, "nothing is allowed without a token")
			o.Token = func() string { return theToken }
			r, err := Run(t.Context(), o)
			require.NoError(t, err)
			assert.EqualValues(t, 100, r.Requests)
			assert.Zero(t, r.Wrong+r.Refused)
			o.Token = func() string { return "wrong-horse-battery" }
			_, err = Run(t.Context(), o)
			require.ErrorIs(t, err, measure.ErrAnswer)
			require.ErrorContains(t, err, `no WELCOME, but "\x05ERROR\x03400"`)
		})
	}
}
