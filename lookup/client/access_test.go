package client

import (
	"crypto/tls"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/certtest"
	"github.com/hitline/hitline/lookup/access"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/internal/lookuptest"
	"github.com/hitline/hitline/lookup/server"
	"github.com/hitline/hitline/netproto"
)

// What a real server allows a client by its token, in clear and over TLS.
func TestAccess(t *testing.T) {
	rules, err := access.NewRules(access.Ping, []access.Credential{
		{Name: "all", Digest: access.DigestOf([]byte(theToken)), Permissions: access.All},
		{Name: "lookups", Digest: access.DigestOf([]byte("lookups-alone-0123")), Permissions: access.Lookup | access.Pool},
	})
	require.NoError(t, err)
	ca := certtest.NewCA("access")
	s, err := serveOn(t, blocks16, server.Config{Loops: 2, Logger: slog.New(slog.DiscardHandler), Listeners: []server.Listener{
		{Address: "tcp://127.0.0.1:0", Settings: server.Settings{Rules: rules}},
		{Address: "tls://127.0.0.1:0", Settings: server.Settings{Rules: rules, TLS: &tls.Config{Certificates: []tls.Certificate{ca.Leaf("127.0.0.1")}}}},
	}})
	require.NoError(t, err)
	for i, network := range []string{"clear", "TLS"} {
		addr := s.Addrs()[i]
		for name, kind := range clientKinds {
			t.Run(network+" "+name, func(t *testing.T) {
				opts := append([]Option{WithTLS(&tls.Config{RootCAs: ca.Pool()}), WithTimeout(lookuptest.Patience)}, kind...)
				all := dialAs(t, addr, append(opts, WithToken(theToken))...)
				require.NoError(t, all.Store(background, netproto.GroupRank{}, someHashes))
				hit, err := all.Lookup(background, 64, someHashes)
				require.NoError(t, err)
				require.EqualValues(t, 64, hit.Tokens)

				instances := 0
				some := dialAs(t, addr, append(opts, WithToken("lookups-alone-0123"), WithOnInstance(func(api.Instance) { instances++ }))...)
				hit, err = some.Lookup(background, 64, someHashes)
				require.NoError(t, err)
				require.EqualValues(t, 64, hit.Tokens)
				require.Zero(t, instances, "a ping is not allowed")
				require.ErrorIs(t, some.Reset(background), ErrNotAllowed)
				_, err = some.Stat(background)
				require.ErrorIs(t, err, ErrNotAllowed)

				none := dialAs(t, addr, opts...)
				require.NoError(t, none.Ping(background))
				_, err = none.Lookup(background, 64, someHashes)
				require.ErrorIs(t, err, ErrNotAllowed)
				_, err = Dial(background, addr, append(opts, WithPool("", coordinator.Pool{HashBlockSize: 16}))...)
				require.ErrorIs(t, err, ErrNotAllowed)
				require.NotErrorIs(t, err, ErrPoolDiffers)
				_, err = Dial(background, addr, append(opts, WithToken("another-token-012345"))...)
				require.ErrorIs(t, err, ErrNotAuthenticated)
			})
		}
	}
}
