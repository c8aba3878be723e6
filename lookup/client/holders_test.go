package client

import (
	"crypto/tls"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/events"
	"github.com/hitline/hitline/fleet"
	"github.com/hitline/hitline/internal/certtest"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/access"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/holders"
	"github.com/hitline/hitline/lookup/internal/lookuptest"
	"github.com/hitline/hitline/lookup/server"
	"github.com/hitline/hitline/netproto"
)

// serveHolders starts a server in clear and over TLS, whose model m has one holder of the first 3 of someHashes. Its
// pool has 2 of them.
func serveHolders(t *testing.T, tlsConfig *tls.Config) *server.Server {
	t.Helper()
	service, err := lookup.NewService(blocks16)
	require.NoError(t, err)
	require.NoError(t, service.Store(t.Context(), coordinator.GroupRank{}, coordinator.NewHashes(someHashes.Bytes()[:2*32], 32)))
	kept, err := holders.New(holders.Config{Models: []holders.Model{{ModelKey: holders.ModelKey{Name: "m"}, Service: service}}})
	require.NoError(t, err)
	t.Cleanup(kept.Close)
	f, _, err := kept.Fleet(holders.ModelKey{Name: "m"})
	require.NoError(t, err)
	h, err := f.Add(fleet.ID{Instance: "e", Rank: 1})
	require.NoError(t, err)
	h.SetStale(false)
	held := events.Blocks{Group: events.NoGroup, Tier: events.Tier{Medium: "GPU"}, BlockSize: 16, Hashes: coordinator.NewHashes(someHashes.Bytes()[:3*32], 32)}
	require.NoError(t, h.Store(&held, make([]bool, 3)))
	rules, err := access.NewRules(access.Ping, []access.Credential{
		{Name: "all", Digest: access.DigestOf([]byte(theToken)), Permissions: access.All},
		{Name: "holders", Digest: access.DigestOf([]byte("holders-alone-0123")), Permissions: access.Holders},
	})
	require.NoError(t, err)
	s, err := server.New(service, server.Config{Loops: 2, Holders: kept, Listeners: []server.Listener{
		{Address: "tcp://127.0.0.1:0", Settings: server.Settings{Rules: rules}},
		{Address: "tls://127.0.0.1:0", Settings: server.Settings{Rules: rules, TLS: tlsConfig}},
	}})
	require.NoError(t, err)
	require.NoError(t, s.Start(t.Context()))
	t.Cleanup(func() { _ = s.Shutdown(background) })
	return s
}

func TestHolders(t *testing.T) {
	ca := certtest.NewCA("holders")
	s := serveHolders(t, &tls.Config{Certificates: []tls.Certificate{ca.Leaf("127.0.0.1")}})
	for i, network := range []string{"clear", "TLS"} {
		for name, kind := range clientKinds {
			t.Run(network+" "+name, func(t *testing.T) {
				opts := append([]Option{WithTLS(&tls.Config{RootCAs: ca.Pool()}), WithTimeout(lookuptest.Patience)}, kind...)
				all := dialAs(t, s.Addrs()[i], append(opts, WithToken(theToken), WithPool("", coordinator.Pool{HashBlockSize: 16}))...)
				has := []api.Holder{{Instance: "e", Rank: 1, Tokens: 48, Media: map[string]int64{"GPU": 48}}}
				got, err := all.Holders(background, nil, someHashes)
				require.NoError(t, err)
				require.Equal(t, &api.HoldersAnswer{BlockSize: 16, Holders: has}, got)
				loadable := int64(32)
				got, err = all.Holders(background, &api.HoldersQuery{Model: "m", Tenant: "default", Loadable: true, NumTokens: 60}, someHashes)
				require.NoError(t, err)
				require.Equal(t, &api.HoldersAnswer{BlockSize: 16, Holders: has, LoadableTokens: &loadable}, got)
				got, err = all.Holders(background, &api.HoldersQuery{Instance: "other"}, coordinator.Hashes{})
				require.NoError(t, err)
				require.Equal(t, &api.HoldersAnswer{BlockSize: 16, Holders: []api.Holder{}}, got)
				_, err = all.Holders(background, &api.HoldersQuery{Model: "x"}, someHashes)
				require.ErrorIs(t, err, ErrRefused)
				require.ErrorContains(t, err, "there is no such model")

				some := dialAs(t, s.Addrs()[i], append(opts, WithToken("holders-alone-0123"))...)
				_, err = some.Holders(background, nil, someHashes)
				require.NoError(t, err)
				_, err = some.Holders(background, &api.HoldersQuery{Loadable: true}, someHashes)
				require.ErrorIs(t, err, ErrNotAllowed)
				none := dialAs(t, s.Addrs()[i], opts...)
				_, err = none.Holders(background, nil, someHashes)
				require.ErrorIs(t, err, ErrNotAllowed)
			})
		}
	}
}

// What the wire cannot take is not sent, and a reply that is none is an error.
func TestHoldersRequests(t *testing.T) {
	for name, kind := range clientKinds {
		t.Run(name, func(t *testing.T) {
			var asked atomic.Int64
			f := &fakeServer{answer: func(r *fakeRequest) {
				asked.Add(1)
				r.conn.send(netproto.AppendDone(nil, r.envelope, netproto.AppendFrame(nil, []byte("[]"), false)))
			}}
			t.Cleanup(f.all.Wait)
			nc, err := f.connect()
			require.NoError(t, err)
			c := dialOver(t, nc, kind...)
			for _, bad := range []coordinator.Hashes{coordinator.NewHashes(make([]byte, 33), 32), coordinator.NewHashes(make([]byte, 65), 65)} {
				_, err := c.Holders(background, nil, bad)
				require.ErrorIs(t, err, ErrRequest)
			}
			_, err = c.Holders(background, &api.HoldersQuery{Model: strings.Repeat("m", netproto.MaxHoldersQuery)}, someHashes)
			require.ErrorIs(t, err, ErrRequest)
			require.Zero(t, asked.Load())
			_, err = c.Holders(background, nil, someHashes)
			require.ErrorIs(t, err, ErrReply)
			require.EqualValues(t, 1, asked.Load())
		})
	}
}
