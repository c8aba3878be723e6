package client

import (
	"crypto/tls"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/certtest"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup/access"
	"github.com/hitline/hitline/lookup/server"
)

// What a real server that wants certificates allows a client by its token, also once that is another one. The table of
// all requests is the server's.
func TestAccess(t *testing.T) {
	ca := certtest.NewCA("access")
	settings := func(token string) server.Settings {
		rules, err := access.NewRules(access.Ping, []access.Credential{
			{Name: "engines", Digest: access.DigestOf([]byte(token)), Permissions: access.Lookup | access.Store},
		})
		require.NoError(t, err)
		return server.Settings{Rules: rules, TLS: &tls.Config{
			Certificates: []tls.Certificate{ca.Leaf("127.0.0.1")}, ClientCAs: ca.Pool(), ClientAuth: tls.RequireAndVerifyClientCert,
		}}
	}
	s, err := serveOn(t, blocks16, server.Config{Loops: 2, Logger: slog.New(slog.DiscardHandler), Listeners: []server.Listener{
		{Address: "tls://127.0.0.1:0", Settings: settings(theToken)},
	}})
	require.NoError(t, err)
	addr := s.Addrs()[0]
	options := func(certificate tls.Certificate, more ...Option) []Option {
		cfg := &tls.Config{RootCAs: ca.Pool(), Certificates: []tls.Certificate{certificate}}
		return append([]Option{WithTLS(cfg), WithTimeout(lookuptest.Patience)}, more...)
	}
	fresh := ca.Leaf("engine")
	c := dialAs(t, addr, options(fresh, WithToken(theToken))...)
	require.NoError(t, c.Store(background, coordinator.GroupRank{}, someHashes))
	hit, err := c.Lookup(background, 64, someHashes)
	require.NoError(t, err)
	require.EqualValues(t, 64, hit.Tokens)
	require.ErrorIs(t, c.Reset(background), ErrNotAllowed)

	expired, err := Dial(background, addr, options(ca.LeafUntil(time.Now().Add(-time.Minute), "engine"))...)
	require.Nil(t, expired)
	require.ErrorIs(t, err, ErrConnect)

	require.NoError(t, s.SetListener(addr, settings("the-next-token")))
	_, err = Dial(background, addr, options(fresh, WithToken(theToken))...)
	require.ErrorIs(t, err, ErrNotAuthenticated)
	c = dialAs(t, addr, options(fresh, WithToken("the-next-token"))...)
	_, err = c.Lookup(background, 64, someHashes)
	require.NoError(t, err)
}
