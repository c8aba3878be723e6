package server

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/access"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/internal/lookuptest"
	"github.com/hitline/hitline/netproto"
)

// startSlow starts a server over a store whose first lookup waits for a gate, with another pool,
// and returns the request of that lookup.
func startSlow(t *testing.T, credentials ...access.Credential) (*Server, *lookuptest.Gate, []byte) {
	t.Helper()
	slow := lookuptest.Chain("slow", 8, 32)
	store, gate := lookuptest.Filled(t, slow), lookuptest.NewGate()
	store.Holding(gate, "exists", fmt.Sprintf("%x", slow[:32]))
	service, err := lookup.NewService(lookup.ServiceConfig{Pool: blocks16.Pool, Backend: store, Remote: patient})
	require.NoError(t, err)
	other, err := lookup.NewService(lookup.ServiceConfig{Pool: modelPool("second"), Backend: store, Shared: service.Backend(), Remote: patient})
	require.NoError(t, err)
	server, err := New(service, Config{
		Listeners: []Listener{{"tcp://127.0.0.1:0", settingsOf(t, access.Ping, credentials...)}}, Loops: 2,
		Pools: []NamedPool{{"second", other}},
	})
	require.NoError(t, err)
	startTest(t, server)
	return server, gate, lookupOf("", slow)
}

// A stat whose reply waits for that of a request before it is about the credential that it was asked
// with, also if an auth request between them has failed.
func TestStatBehindFailedAuth(t *testing.T) {
	server, gate, slow := startSlow(t, tokenOf("tenant", access.All, ""))
	p := lookuptest.DialPeer(t, server.Addrs()[0])
	auth(t, p, "tenant")
	p.Send(t, slow, plainOf("", netproto.TagStat), plainOf("", netproto.TagAuth, []byte("no such token")), plainOf("end", netproto.TagPing))
	p.Expect(t, "end 01")
	close(gate.Open)
	p.Next(t)
	var st api.Stat
	frames := p.Next(t)
	require.NoError(t, json.Unmarshal(frames[1], &st))
	require.EqualValues(t, 1, st.Pools, "%s", frames)
}

// A request that waits is not served once its credential is gone, also if the connection has
// another one meanwhile.
func TestPendingOfEarlierCredential(t *testing.T) {
	first, second := tokenOf("first", access.All), tokenOf("second", access.All)
	server, gate, slow := startSlow(t, first, second)
	p := lookuptest.DialPeer(t, server.Addrs()[0])
	auth(t, p, "first")
	p.Send(t, slow, plainOf("reset", netproto.TagReset), plainOf("auth", netproto.TagAuth, []byte("token of second")))
	p.Expect(t, "auth 01")
	require.NoError(t, server.SetListener(server.Addrs()[0], settingsOf(t, access.Ping, second)))
	p.Send(t, plainOf("end", netproto.TagPing))
	p.Expect(t, "end 01")
	close(gate.Open)
	p.Expect(t, hitText(8), "reset 00")
	require.EqualValues(t, 1, server.Stat().NotAllowed["reset"])
}
