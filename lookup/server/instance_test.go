package server

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/bufpool"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/client"
	"github.com/hitline/hitline/lookup/internal/lookuptest"
	"github.com/hitline/hitline/netproto"
)

// A ping without frames is answered with the instance, without an allocation; one with frames
// with these, be they empty.
func TestPingNamesTheInstance(t *testing.T) {
	before := time.Now().Truncate(time.Millisecond)
	server := unstarted(t)
	var got allReplies
	ses := openSession(server, &got, nil)
	envelope := encodeEnvelope("\x00id")
	ping := netproto.AppendRequest(nil, envelope, netproto.TagPing)
	require.NoError(t, ses.receive(ping))
	frames, _, err := netproto.ParseMessage(got.Bytes(), netproto.Limits{}, nil)
	require.NoError(t, err)
	require.Len(t, frames, 4) // of which two are the envelope
	require.Equal(t, []byte{netproto.StatusDone}, frames[2])
	var i api.Instance
	require.NoError(t, json.Unmarshal(frames[3], &i))
	require.Equal(t, server.Instance(), i)
	require.Regexp(t, "^[0-9a-f]{16}$", i.ID)
	require.Equal(t, time.UTC, i.StartTime.Location())
	require.False(t, i.StartTime.Before(before) || i.StartTime.After(time.Now()))
	require.Equal(t, "devel", i.Version)
	require.Equal(t, 1, i.Protocol)
	require.NotEqual(t, i.ID, unstarted(t).Instance().ID)

	got.Reset()
	require.NoError(t, ses.receive(netproto.AppendRequest(nil, envelope, netproto.TagPing, nil)))
	require.Equal(t, netproto.AppendDone(nil, envelope, netproto.AppendFrame(nil, nil, false)), got.Bytes())

	if !bufpool.Debug {
		require.Zero(t, testing.AllocsPerRun(200, func() {
			got.Reset()
			_ = ses.receive(ping)
		}))
	}
}

// Over a backend pings and stat name the instance, too.
func TestInstanceOverBackend(t *testing.T) {
	s := startRemote(t, new(lookuptest.KeyStore), patient, Limits{})
	c := dialTest(t, s)
	i, err := c.Instance(t.Context())
	require.NoError(t, err)
	require.Equal(t, s.Instance(), i)
	st := statOf(t, c)
	require.Equal(t, i.ID, st.Instance)
	require.Equal(t, i.StartTime, st.StartTime)
}

// A reset of a rank is served turn by turn, and others between them. What the connection sends
// behind it waits.
func TestResetRankInTurns(t *testing.T) {
	server := serverOf(t, coordinator.Pool{HashBlockSize: 16, TPSize: 2, NumKVHead: 2})
	const n = 100_000
	hashes := coordinator.NewHashes(lookuptest.Chain("rank", n, 32), 32)
	for tp := range uint16(2) {
		require.NoError(t, server.service.Store(t.Context(), coordinator.GroupRank{TPRank: tp}, hashes))
	}
	tokens := func() int64 {
		hit, err := server.service.Lookup(t.Context(), 16*n, hashes)
		require.NoError(t, err)
		return hit.Tokens
	}
	require.EqualValues(t, 16*n, tokens())
	var got allReplies
	ses := openSession(server, &got, nil)
	ses.queue = &turnQueue{signal: -1}
	const any = coordinator.AnyRank
	request := netproto.AppendResetRank(nil, nil, netproto.Rank{Group: any, TPRank: 1, PPRank: any, PCPRank: any})
	// The ranks that are left hold as many entries as before. The second request finds nothing
	// to change, the third is a reset.
	request = append(request, request...)
	request = netproto.AppendResetRank(request, nil, netproto.Rank{Group: any, TPRank: any, PPRank: any, PCPRank: any})
	require.NoError(t, ses.receive(request))
	turns := 1
	for ; ses.waiting.Load(); turns++ {
		require.LessOrEqual(t, turnShare-ses.workLeft, turnShare+mostOver)
		if got.Len() == 0 {
			require.EqualValues(t, n, server.service.Stat().Entries)
			require.Zero(t, tokens(), "the first block has lost a rank in the first turn")
		}
		require.NoError(t, ses.takeTurn())
	}
	require.Greater(t, turns, 5)
	require.Equal(t, 3, got.count(t))
	require.Zero(t, server.service.Stat().Entries)

	refused := netproto.AppendResetRank(nil, nil, netproto.Rank{TPRank: 2})
	require.NoError(t, ses.receive(refused))
	require.Contains(t, got.String(), "group or rank is outside the configured pool")
}

// A connection that ends during a reset of a rank gives it up.
func TestResetRankOfAClosedConnection(t *testing.T) {
	server := serverOf(t, lookuptest.Blocks16)
	hashes := coordinator.NewHashes(lookuptest.Chain("rank", 20_000, 32), 32)
	require.NoError(t, server.service.Store(t.Context(), coordinator.GroupRank{}, hashes))
	ses := openSession(server, new(allReplies), nil)
	ses.queue = &turnQueue{signal: -1}
	require.NoError(t, ses.receive(netproto.AppendResetRank(nil, nil, netproto.Rank{})))
	require.True(t, ses.waiting.Load())
	h := ses.handler.(*memoryHandler)
	reset := h.reset
	h.close()
	require.Nil(t, h.reset)
	left := server.service.Stat().Entries
	require.NotZero(t, left)
	require.True(t, reset.Step(1))
	require.Equal(t, left, server.service.Stat().Entries)
}

// Over a backend a reset of one rank is refused, and one of all is a reset.
func TestResetRankOverBackend(t *testing.T) {
	store := new(lookuptest.KeyStore)
	c := dialTest(t, startRemote(t, store, patient, Limits{}))
	err := c.ResetRank(t.Context(), coordinator.GroupRank{})
	require.ErrorIs(t, err, client.ErrRefused)
	require.ErrorContains(t, err, lookup.ErrResetRank.Error())
	require.Zero(t, store.Resets.Load())
	const any = coordinator.AnyRank
	require.NoError(t, c.ResetRank(t.Context(), coordinator.GroupRank{Group: any, TPRank: any, PPRank: any, PCPRank: any}))
	require.EqualValues(t, 1, store.Resets.Load())
}
