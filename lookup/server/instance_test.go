package server

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/bufpool"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/netproto"
)

// A ping without frames is answered with the instance, without an allocation; one with frames
// with these, be they empty.
func TestPingNamesTheInstance(t *testing.T) {
	before := time.Now().Truncate(time.Millisecond)
	server := unstarted(t)
	var got allReplies
	ses := openSession(server, &got)
	envelope := encodeEnvelope("\x00id")
	ping := netproto.AppendRequest(nil, envelope, netproto.TagPing)
	require.NoError(t, serveTurn(ses, ping))
	frames, _, err := netproto.ParseMessage(got.Bytes(), netproto.Limits{}, nil)
	require.NoError(t, err)
	require.Len(t, frames, 4) // of which two are the envelope
	require.Equal(t, []byte{netproto.StatusDone}, frames[2])
	var i api.Instance
	require.NoError(t, json.Unmarshal(frames[3], &i))
	want := server.Instance()
	want.PromptAlignment = 16
	require.Equal(t, want, i)
	require.Regexp(t, "^[0-9a-f]{16}$", i.ID)
	require.Equal(t, time.UTC, i.StartTime.Location())
	require.False(t, i.StartTime.Before(before) || i.StartTime.After(time.Now()))
	require.Equal(t, "devel", i.Version)
	require.Equal(t, 1, i.Protocol)
	require.NotEqual(t, i.ID, unstarted(t).Instance().ID)

	require.ElementsMatch(t, RequestTags(), append(i.Requests, "unknown"))
	require.Equal(t, limitsTold(DefaultLimits()), i.Limits)

	got.Reset()
	require.NoError(t, serveTurn(ses, netproto.AppendRequest(nil, envelope, netproto.TagPing, nil)))
	require.Equal(t, netproto.AppendDone(nil, envelope, netproto.AppendFrame(nil, nil, false)), got.Bytes())

	if !bufpool.Debug {
		require.Zero(t, testing.AllocsPerRun(200, func() {
			got.Reset()
			_ = serveTurn(ses, ping)
		}))
	}
}

// limitsTold returns what pings tell of limits.
func limitsTold(l Limits) api.Limits {
	return api.Limits{MaxMessage: l.MaxMessage, MaxFrames: 32, MaxHashes: l.MaxHashes, MaxInFlight: l.MaxInFlight, MaxInFlightBytes: 4 << 20}
}

// A ping tells the limits, over both kinds of pools, and the server keeps to them.
func TestPingTellsLimits(t *testing.T) {
	overBoth(t, func(t *testing.T, store *lookuptest.KeyStore) {
		server := startWith(t, store, Settings{})
		told := func() (i api.Instance) {
			p := lookuptest.DialPeer(t, server.Addrs()[0])
			require.NoError(t, json.Unmarshal(p.Ask(t, []byte("ping"))[1], &i))
			return i
		}
		first := limitsTold(DefaultLimits())
		if store != nil {
			first.MaxInFlight = 128 // 4 for each of 32 workers
		}
		require.Equal(t, first, told().Limits)
		want := server.Instance()
		want.PromptAlignment = 16
		require.Equal(t, want, told())
		p := lookuptest.DialPeer(t, server.Addrs()[0])
		refused := refusalIn(p.Ask(t, []byte("lookup"), u32s(64), []byte{0, 1}, make([]byte, first.MaxHashes+1)))
		require.Equal(t, &api.Refusal{Refusal: api.RefusalTooLarge, Request: "lookup", Limit: int64(first.MaxHashes)}, refused)
	})
}

// A ping tells what the tokens of lookups in the connection's pool are multiples of, and nothing without a pool.
func TestPingTellsPromptAlignment(t *testing.T) {
	services := map[string]*lookup.Service{}
	for name, pool := range map[string]coordinator.Pool{
		"own": {HashBlockSize: 16}, "wide": {VLLM: "0.26.0", HashBlockSize: 16, SchedulerBlockSize: 64}, "any": {VLLM: "0.27.0"},
	} {
		service, err := lookup.NewService(lookup.ServiceConfig{Pool: pool})
		require.NoError(t, err)
		services[name] = service
	}
	server, err := New(services["own"], Config{
		Listeners: []Listener{{Address: "tcp://127.0.0.1:0"}}, Loops: 2,
		Pools: []ServedPool{{Name: "wide", Service: services["wide"]}, {Name: "any", Service: services["any"]}},
	})
	require.NoError(t, err)
	startTest(t, server)
	p := lookuptest.DialPeer(t, server.Addrs()[0])
	for _, step := range []struct {
		pool string
		want int64
	}{{"", 16}, {"wide", 64}, {"any", 1}, {"nobody", 0}, {"wide", 64}} {
		description, err := json.Marshal(map[string]string{"name": step.pool})
		require.NoError(t, err)
		p.Ask(t, []byte("pool"), description)
		var i api.Instance
		require.NoError(t, json.Unmarshal(p.Ask(t, []byte("ping"))[1], &i))
		require.Equal(t, step.want, i.PromptAlignment, step.pool)
	}
}
