package server

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/access"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/netproto"
)

// A stat whose reply waits for that of a request before it is about the credential that it was asked
// with, also if an auth request between them has failed.
func TestStatBehindFailedAuth(t *testing.T) {
	store, gate := &lookuptest.KeyStore{}, lookuptest.NewGate()
	store.Holding(gate, "exists", "")
	server := startWith(t, store, settingsOf(t, access.Ping, tokenOf("tenant", access.All, "")))
	p := lookuptest.DialPeer(t, server.Addrs()[0])
	auth(t, p, "tenant")
	p.Send(t, lookupOf("", lookuptest.Chain("slow", 8, 32)), plainOf("", netproto.TagStat), plainOf("", netproto.TagAuth, []byte("no such token")))
	lookuptest.Eventually(t, "all is received", func() bool { return server.Stat().InFlight == 3 })
	close(gate.Open)
	p.Next(t)
	var st api.Stat
	frames := p.Next(t)
	require.NoError(t, json.Unmarshal(frames[1], &st))
	require.EqualValues(t, 1, st.Pools, "%s", frames)
}

// A request that waits for a worker is not served by an authorization that is gone.
func TestAuthorizationGoneInTheQueue(t *testing.T) {
	store, gate := &lookuptest.KeyStore{}, lookuptest.NewGate()
	store.Holding(gate, "reset", "")
	cfg := patient
	cfg.WriteWorkers = 1
	service, err := lookup.NewService(lookup.ServiceConfig{Pool: blocks16.Pool, Backend: store, Remote: cfg})
	require.NoError(t, err)
	keeps, gone := tokenOf("keeps", access.All), tokenOf("gone", access.All)
	server, err := New(service, Config{Listeners: []Listener{{Address: "tcp://127.0.0.1:0", Settings: settingsOf(t, access.Reset, keeps, gone)}}, Loops: 2})
	require.NoError(t, err)
	startTest(t, server)

	var peers []*lookuptest.Peer
	for i, name := range []string{"", "keeps", "gone"} {
		p := lookuptest.DialPeer(t, server.Addrs()[0])
		if name != "" {
			auth(t, p, name)
		}
		p.Send(t, plainOf("", netproto.TagReset))
		lookuptest.Eventually(t, "it is received", func() bool { return gate.Held.Load() == 1 && server.Stat().InFlight == int64(i+1) })
		peers = append(peers, p)
	}
	require.NoError(t, server.SetListener(server.Addrs()[0], settingsOf(t, access.Reset, tokenOf("keeps", access.Ping))))
	peers[2].ClosedWithin(t)
	close(gate.Open)
	require.Equal(t, []byte{netproto.StatusDone}, peers[0].Next(t)[0])
	require.Equal(t, &api.Refusal{Refusal: api.RefusalNotAllowed, Request: "reset"}, refusalIn(peers[1].Next(t)))
	require.NoError(t, server.Shutdown(t.Context()))
	require.EqualValues(t, 1, store.Resets.Load())
}
