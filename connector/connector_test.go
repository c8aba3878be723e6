package connector_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/connector"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/client"
	"github.com/hitline/hitline/lookup/server"
	"github.com/hitline/hitline/netproto"
)

// must returns the rules of a pool.
func must(t testing.TB, pool coordinator.Pool) *coordinator.Coordinator {
	t.Helper()
	rules, err := coordinator.New(pool)
	require.NoError(t, err)
	return rules
}

func full(block int) coordinator.Group {
	return coordinator.Group{Kind: coordinator.FullAttention, BlockSize: block}
}

func window(block, size int) coordinator.Group {
	return coordinator.Group{Kind: coordinator.SlidingWindow, BlockSize: block, SlidingWindow: size}
}

func mamba(block int) coordinator.Group {
	return coordinator.Group{Kind: coordinator.Mamba, BlockSize: block, MambaCacheMode: "align"}
}

// hybrid is a pool of full attention, a window of two of its chunks, and mamba states.
func hybrid(release string) coordinator.Pool {
	return coordinator.Pool{VLLM: release, Groups: []coordinator.Group{full(16), window(16, 32), mamba(16)}}
}

// fine is a pool in fine-grained mode: hits may end inside a chunk.
func fine(release string) coordinator.Pool {
	pool := coordinator.Pool{VLLM: release, HashBlockSize: 4, Groups: []coordinator.Group{full(16), mamba(8)}}
	if release == "0.33.0" {
		pool.CacheHitAlignmentTokens = 4
	}
	return pool
}

// show writes runs as group:first-end with the numbers of their hashes.
func show(runs []connector.Run) (list []string) {
	for _, r := range runs {
		var hashes []int
		for _, hash := range r.Hashes() {
			hashes = append(hashes, hash)
		}
		list = append(list, fmt.Sprintf("%d:%d-%d %v", r.Group, r.First, r.End, hashes))
	}
	return list
}

// fakePoller answers when it is told to, and remembers what it was asked.
type fakePoller struct {
	hit       coordinator.Hit
	ready     bool
	err       error
	asked     []int64
	discarded []string
}

func (f *fakePoller) Poll(_ string, numTokens int64, _ netproto.Hashes) (coordinator.Hit, bool, error) {
	f.asked = append(f.asked, numTokens)
	if !f.ready {
		return coordinator.Hit{}, false, nil
	}
	return f.hit, true, f.err
}

func (f *fakePoller) Discard(id string) { f.discarded = append(f.discarded, id) }

// What is asked, and how much is loaded, by the text of the specification.
func TestMatch(t *testing.T) {
	single := func(release string) coordinator.Pool { return coordinator.Pool{VLLM: release} } // blocks of 16
	for _, tc := range []struct {
		name                  string
		pool                  coordinator.Pool
		tokens, computed, hit int64
		asked                 []int64
		want, load            int64
	}{
		{"less than a block", single("0.24.0"), 15, 0, 0, nil, 0, 0},
		{"whole blocks", single("0.24.0"), 50, 0, 48, []int64{48}, 48, 48},
		{"a hit of all tokens is lowered", single("0.24.0"), 48, 0, 48, []int64{48}, 32, 32},
		{"0.26.0 lowers it too", single("0.26.0"), 48, 16, 48, []int64{48}, 32, 16},
		{"one block", single("0.26.0"), 16, 0, 16, []int64{16}, 0, 0},
		{"computed tokens", single("0.26.0"), 64, 32, 48, []int64{64}, 48, 16},
		{"all computed", single("0.26.0"), 64, 48, 48, []int64{64}, 48, 0},
		{"more computed than stored", single("0.26.0"), 64, 48, 16, []int64{64}, 16, 0},
		{"0.27.1: less than a block", single("0.27.1"), 15, 0, 0, nil, 0, 0},
		{"0.27.1: as it is", single("0.27.1"), 50, 0, 48, []int64{50}, 48, 48},
		{"0.27.1: the answer stays", single("0.27.1"), 48, 0, 48, []int64{48}, 48, 48},
		{"0.29.0: computed tokens", single("0.29.0"), 49, 16, 48, []int64{49}, 48, 32},
		{"0.29.0: fine-grained, derived", fine("0.29.0"), 4, 0, 0, []int64{4}, 0, 0},
		{"0.33.0: fine-grained, configured", fine("0.33.0"), 43, 4, 40, []int64{43}, 40, 36},
		{"0.33.0: less than a hash block", fine("0.33.0"), 3, 0, 0, nil, 0, 0},
		{"capacity-only", coordinator.Pool{VLLM: "0.33.0", CapacityOnly: true}, 64, 0, 0, nil, 0, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			poller := &fakePoller{hit: coordinator.Hit{Tokens: tc.hit}, ready: true}
			m, ready, err := connector.NewScheduler(must(t, tc.pool), poller).Match("r", tc.tokens, tc.computed, netproto.Hashes{})
			require.NoError(t, err)
			assert.True(t, ready)
			assert.Equal(t, tc.asked, poller.asked)
			assert.Equal(t, connector.Match{Hit: coordinator.Hit{Tokens: tc.want}, Tokens: tc.load}, m)
		})
	}
}

// A lookup under way is asked for again, and its request may go.
func TestMatchWaits(t *testing.T) {
	tails := []coordinator.TailBoundary{{Group: 0, Tokens: 48}, {Group: 1, Tokens: 40}}
	poller := &fakePoller{hit: coordinator.Hit{Tokens: 40, TailBoundaries: tails}}
	s := connector.NewScheduler(must(t, fine("0.33.0")), poller)
	m, ready, err := s.Match("r", 50, 4, netproto.Hashes{})
	require.NoError(t, err)
	assert.False(t, ready)
	assert.Zero(t, m)
	poller.ready = true
	m, ready, err = s.Match("r", 50, 4, netproto.Hashes{})
	require.NoError(t, err)
	assert.True(t, ready)
	assert.Equal(t, connector.Match{Hit: poller.hit, Tokens: 36}, m)
	s.Discard("other")
	assert.Equal(t, []string{"other"}, poller.discarded)
	poller.err = errors.New("lost")
	m, ready, err = s.Match("r", 50, 4, netproto.Hashes{})
	require.ErrorIs(t, err, poller.err)
	assert.True(t, ready)
	assert.Zero(t, m)
}

// storedService is a service with the blocks of a prompt of 80 tokens, as StoreRuns says.
func storedService(t *testing.T, pool coordinator.Pool, hashes netproto.Hashes) *lookup.Service {
	service, err := lookup.NewService(lookup.ServiceConfig{Pool: pool})
	require.NoError(t, err)
	runs, err := connector.StoreRuns(must(t, pool), 0, 80, 80)
	require.NoError(t, err)
	for _, run := range runs {
		var before, keys []byte
		if i := run.Before(); i >= 0 {
			before = hashes.At(i)
		}
		for _, hash := range run.Hashes() {
			keys = append(keys, hashes.At(hash)...)
		}
		at := lookup.GroupRank{Group: uint16(run.Group)}
		require.NoError(t, service.StoreChain(t.Context(), at, uint32(run.First), before, netproto.NewHashes(keys, hashes.HashLen())))
	}
	return service
}

// A service in this process is asked by a LookupFunc, one behind a server by an AsyncClient.
func TestServiceAndClient(t *testing.T) {
	pool, hashes := hybrid("0.27.1"), netproto.NewHashes([]byte("aabbccddee"), 2)
	service := storedService(t, pool, hashes)
	want := connector.Match{Hit: coordinator.Hit{Tokens: 64}, Tokens: 48}

	s := connector.NewScheduler(must(t, pool), connector.LookupFunc(func(n int64, h netproto.Hashes) (coordinator.Hit, error) {
		return service.Lookup(t.Context(), n, h)
	}))
	m, ready, err := s.Match("r", 80, 16, hashes)
	require.NoError(t, err)
	assert.True(t, ready)
	assert.Equal(t, want, m)
	s.Discard("r")

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	srv, err := server.New(service, server.Config{Listen: []string{"tcp://127.0.0.1:0"}, Loops: 1, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	require.NoError(t, srv.Start(ctx))
	defer func() { assert.NoError(t, srv.Shutdown(ctx)) }()
	async, err := client.DialAsync(ctx, srv.Addrs()[0], client.WithTimeout(time.Minute))
	require.NoError(t, err)
	defer async.Close()
	s = connector.NewScheduler(must(t, pool), async)
	_, _, err = s.Match("gone", 80, 16, hashes)
	require.NoError(t, err)
	s.Discard("gone")
	for m, ready, err = s.Match("r", 80, 16, hashes); !ready; m, ready, err = s.Match("r", 80, 16, hashes) {
		time.Sleep(time.Millisecond)
	}
	require.NoError(t, err)
	assert.Equal(t, want, m)
}

func TestLoadRuns(t *testing.T) {
	tails := []coordinator.TailBoundary{{Group: 0, Tokens: 48}, {Group: 1, Tokens: 40}}
	untransferred := window(16, 32)
	untransferred.EnableKVTransfer = new(bool)
	for _, tc := range []struct {
		name     string
		pool     coordinator.Pool
		hit      coordinator.Hit
		computed int64
		want     []string
	}{
		{"0.24.0", hybrid("0.24.0"), coordinator.Hit{Tokens: 64}, 0, []string{"0:0-4 [0 1 2 3]", "1:2-4 [2 3]", "2:3-4 [3]"}},
		{"0.26.0", hybrid("0.26.0"), coordinator.Hit{Tokens: 64}, 16, []string{"0:1-4 [1 2 3]", "1:2-4 [2 3]", "2:3-4 [3]"}},
		{"within the window", hybrid("0.26.0"), coordinator.Hit{Tokens: 64}, 48, []string{"0:3-4 [3]", "1:3-4 [3]", "2:3-4 [3]"}},
		{"a chunk in part", hybrid("0.26.0"), coordinator.Hit{Tokens: 64}, 47, []string{"0:2-4 [2 3]", "1:2-4 [2 3]", "2:3-4 [3]"}},
		{"nothing", hybrid("0.26.0"), coordinator.Hit{Tokens: 64}, 64, nil},
		{"0.27.1: unequal blocks", coordinator.Pool{VLLM: "0.27.1", Groups: []coordinator.Group{full(32), window(16, 32)}},
			coordinator.Hit{Tokens: 64}, 0, []string{"0:0-2 [1 3]", "1:2-4 [2 3]"}},
		{"0.27.1: fine-grained", fine("0.27.1"), coordinator.Hit{Tokens: 40}, 0, []string{"0:0-3 [3 7 9]", "1:4-5 [9]"}},
		{"0.29.0: tail boundaries", fine("0.29.0"), coordinator.Hit{Tokens: 40, TailBoundaries: tails}, 0, []string{"0:0-3 [3 7 11]", "1:4-5 [9]"}},
		{"0.33.0: tail boundaries", fine("0.33.0"), coordinator.Hit{Tokens: 40, TailBoundaries: tails}, 36, []string{"0:2-3 [11]", "1:4-5 [9]"}},
		{"0.33.0: store groups", coordinator.Pool{VLLM: "0.33.0", Groups: []coordinator.Group{untransferred, full(16), window(16, 33)}},
			coordinator.Hit{Tokens: 64}, 0, []string{"0:0-4 [0 1 2 3]", "1:2-4 [2 3]"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			runs, err := connector.LoadRuns(must(t, tc.pool), tc.hit, tc.computed, 16)
			require.NoError(t, err)
			assert.Equal(t, tc.want, show(runs))
		})
	}
	_, err := connector.LoadRuns(must(t, fine("0.33.0")), coordinator.Hit{Tokens: 40, TailBoundaries: tails}, 0, 11)
	require.ErrorIs(t, err, connector.ErrHashes)
	windowed := coordinator.Pool{VLLM: "0.33.0", Groups: []coordinator.Group{window(16, 32)}}
	_, err = connector.LoadRuns(must(t, windowed), coordinator.Hit{Tokens: 64}, 0, 3)
	require.ErrorIs(t, err, coordinator.ErrIndexOutOfRange)
}

func TestStoreRuns(t *testing.T) {
	interval := func(pool coordinator.Pool, tokens int) coordinator.Pool {
		pool.RetentionInterval = &tokens
		return pool
	}
	unequal := func(release string) coordinator.Pool {
		return coordinator.Pool{VLLM: release, Groups: []coordinator.Group{full(64), window(16, 32), mamba(32)}, HashBlockSize: 16}
	}
	for _, tc := range []struct {
		name                 string
		pool                 coordinator.Pool
		from, tokens, prompt int64
		want                 []string
	}{
		{"0.24.0", hybrid("0.24.0"), 0, 50, 100, []string{"0:0-3 [0 1 2]", "1:0-3 [0 1 2]", "2:0-3 [0 1 2]"}},
		{"0.24.0: the next step", hybrid("0.24.0"), 50, 64, 100, []string{"0:3-4 [3]", "1:3-4 [3]", "2:3-4 [3]"}},
		{"nothing new", hybrid("0.24.0"), 50, 63, 100, nil},
		{"0.24.0: unequal blocks", unequal("0.24.0"), 0, 128, 128, []string{"0:0-2 [3 7]", "1:2-4 [2 3]", "1:6-8 [6 7]", "2:0-4 [1 3 5 7]"}},
		{"0.26.0: retention", interval(unequal("0.26.0"), 128), 64, 256, 200,
			[]string{"0:1-4 [7 11 15]", "1:6-8 [6 7]", "1:10-12 [10 11]", "1:14-16 [14 15]", "2:3-4 [7]", "2:5-6 [11]", "2:7-8 [15]"}},
		{"0.27.1: a chunk that from cuts", fine("0.27.1"), 20, 40, 100, []string{"0:1-2 [7]", "1:2-5 [5 7 9]"}},
		{"0.29.0: no states", interval(hybrid("0.29.0"), 0), 0, 64, 70, []string{"0:0-4 [0 1 2 3]", "1:2-4 [2 3]"}},
		{"0.33.0: the replay boundary", interval(unequal("0.33.0"), 0), 0, 192, 190, []string{"0:0-3 [3 7 11]", "1:6-8 [6 7]"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			runs, err := connector.StoreRuns(must(t, tc.pool), tc.from, tc.tokens, tc.prompt)
			require.NoError(t, err)
			assert.Equal(t, tc.want, show(runs))
			for _, run := range runs {
				assert.Equal(t, netproto.KeyIndex(int(run.First)-1, must(t, tc.pool).Stride(run.Group)), run.Before())
			}
		})
	}
}

func TestBlockAt(t *testing.T) {
	rules := must(t, fine("0.33.0"))
	for tokens, want := range map[int64]string{40: "0:2-3 [9]", 48: "0:2-3 [11]", 4: "0:0-1 [0]"} {
		run, err := connector.BlockAt(rules, 0, tokens)
		require.NoError(t, err)
		assert.Equal(t, []string{want}, show([]connector.Run{run}))
	}
	run, err := connector.BlockAt(rules, 1, 40)
	require.NoError(t, err)
	assert.Equal(t, []string{"1:4-5 [9]"}, show([]connector.Run{run}))
	assert.Equal(t, 7, run.Before())
	for _, tokens := range []int64{-4, 0, 42} {
		_, err = connector.BlockAt(rules, 1, tokens)
		require.ErrorIs(t, err, connector.ErrBoundary)
	}
	_, err = connector.BlockAt(must(t, hybrid("0.33.0")), 2, 40)
	require.ErrorIs(t, err, connector.ErrBoundary)
}
