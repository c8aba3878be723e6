package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/internal/conformance"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/client"
	"github.com/hitline/hitline/netproto"
)

// startPools starts a server of a configuration. own may be nil.
func startPools(t testing.TB, own *lookup.Service, cfg Config) *Server {
	t.Helper()
	cfg.Listeners, cfg.Loops = []Listener{{Address: "tcp://127.0.0.1:0"}}, 2
	server, err := New(own, cfg)
	require.NoError(t, err)
	startTest(t, server)
	return server
}

// memoryService returns the service of a pool over an index of its own.
func memoryService(pool coordinator.Pool) (*lookup.Service, error) {
	return lookup.NewService(lookup.ServiceConfig{Pool: pool, Memory: index.Config{MaxBytes: index.MinMaxBytes}})
}

// engine is a pool with a value in nearly every field.
func engine() coordinator.Pool {
	return coordinator.Pool{
		VLLM: coordinator.NewestRelease(), ModelName: "org/llama", CachePrefix: "team", HashBlockSize: 16, TPSize: 2, NumKVHead: 8, HashLen: 32,
		Groups: []coordinator.Group{
			{Kind: coordinator.FullAttention, BlockSize: 16},
			{Kind: coordinator.SlidingWindow, BlockSize: 16, SlidingWindow: 512},
		},
	}
}

// describe sends a description and returns the reply's frames.
func describe(t testing.TB, p *lookuptest.Peer, v any) [][]byte {
	t.Helper()
	text, ok := v.([]byte)
	if !ok {
		var err error
		text, err = json.Marshal(v)
		require.NoError(t, err)
	}
	return p.Ask(t, []byte("pool"), text)
}

// The fields in which an engine's description differs are named, with both values. Package coordinator has all of them.
func TestDescribedPoolDiffers(t *testing.T) {
	own, err := memoryService(engine())
	require.NoError(t, err)
	server := startPools(t, own, Config{})
	p := lookuptest.DialPeer(t, server.Addrs()[0])
	for field, change := range map[string]func(p *coordinator.Pool){
		"model_name is \"org/llama\", described as \"org/qwen\"":                        func(p *coordinator.Pool) { p.ModelName = "org/qwen" },
		"groups[0].block_size is 16, described as 32":                                   func(p *coordinator.Pool) { p.Groups[0].BlockSize = 32 },
		fmt.Sprintf("vllm is %q, described as \"0.31.0\"", coordinator.NewestRelease()): func(p *coordinator.Pool) { p.VLLM = "0.31.0" },
		"hash_len is 32, described as 16":                                               func(p *coordinator.Pool) { p.HashLen = 16 },
	} {
		described := engine()
		described.Groups = append([]coordinator.Group(nil), described.Groups...)
		change(&described)
		frames := describe(t, p, described)
		require.Len(t, frames, 3, field)
		require.Equal(t, []byte{netproto.StatusFailed}, frames[0], field)
		assert.Contains(t, string(frames[1]), "the description differs from the pool that is configured: ")
		assert.Contains(t, string(frames[1]), field)
		refusal := refusalIn(frames)
		require.Equal(t, api.RefusalPoolDiffers, refusal.Refusal, field)
		require.NotEmpty(t, refusal.Differences, field)
	}
	frames := describe(t, p, engine())
	require.Equal(t, []byte{netproto.StatusDone}, frames[0], "%s", frames)
}

// What has no effect is no difference, nor is a field that was not configured and has no other
// effect than its default.
func TestDescribedPoolIsTheConfigured(t *testing.T) {
	configured := engine()
	configured.NumKVHead, configured.HashLen, configured.VLLM = 0, 0, "0.27.1"
	own, err := memoryService(configured)
	require.NoError(t, err)
	server := startPools(t, own, Config{})
	c := dialTest(t, server)
	for name, change := range map[string]func(p *coordinator.Pool){
		"nothing":   func(*coordinator.Pool) {},
		"release":   func(p *coordinator.Pool) { p.VLLM = "0.28.0" },
		"retention": func(p *coordinator.Pool) { p.RetentionInterval = new(64) },
	} {
		described := engine()
		described.VLLM = "0.27.1"
		described.Groups = append([]coordinator.Group(nil), described.Groups...)
		change(&described)
		other := dialTest(t, server, client.WithPool("", described))
		pool, ok := other.Pool()
		require.True(t, ok)
		assert.Empty(t, pool.Name, name)
		assert.Equal(t, int64(16), pool.Alignment)
		assert.Equal(t, []api.PoolGroup{
			{Kind: coordinator.FullAttention, BlockSize: 16, Stride: 1, Ranks: 2, KeyPrefix: "team@llama@tp_rank:0@pcp0@dcp0@pp_rank:0@group:0"},
			{Kind: coordinator.SlidingWindow, BlockSize: 16, Stride: 1, Ranks: 2, KeyPrefix: "team@llama@tp_rank:0@pcp0@dcp0@pp_rank:0@group:1"},
		}, pool.Groups)
	}
	require.EqualValues(t, 1, statOf(t, c).Pools)
}

// A server of many pools answers each connection about its own, over one store.
func TestPoolsInARow(t *testing.T) {
	store := &lookuptest.KeyStore{}
	shared := lookup.NewSharedBackend(store, patient, nil)
	server := startPools(t, nil, Config{Backend: shared, MaxPools: 8, AcceptPool: func(pool coordinator.Pool) (*lookup.Service, error) {
		return lookup.NewService(lookup.ServiceConfig{Pool: pool, Shared: shared})
	}})
	n := 500
	if testing.Short() {
		n = 50
	}
	hashes := coordinator.NewHashes(lookuptest.Chain("a", 8, 32), 32)
	first := dialTest(t, server, client.WithPool("", numberedPool(0))) // it stays
	for i := range n {
		c := dialTest(t, server, client.WithPool("", numberedPool(i)))
		pool, _ := c.Pool()
		require.Equal(t, fmt.Sprintf("model-%d", i), pool.Pool.ModelName)
		stored := i%8 + 1
		for tp := range numberedPool(i).TPSize {
			require.NoError(t, c.Store(t.Context(), coordinator.GroupRank{TPRank: uint16(tp)}, coordinator.NewHashes(hashes.Bytes()[:stored*32], 32)))
		}
		hit, err := c.Lookup(t.Context(), 129, hashes)
		require.NoError(t, err)
		require.EqualValues(t, 16*stored, hit.Tokens, "pool %d", i)
		e, err := c.Explain(t.Context(), 129, hashes)
		require.NoError(t, err)
		require.Equal(t, pool.Name, e.Pool)
		require.Equal(t, pool.Name, statOf(t, c).Pool)
		require.NoError(t, c.Close())
	}
	hit, err := first.Lookup(t.Context(), 129, hashes)
	require.NoError(t, err)
	require.EqualValues(t, 16, hit.Tokens, "a pool with a connection does not give way")
	require.LessOrEqual(t, statOf(t, first).Pools, int64(8))
	require.LessOrEqual(t, len(server.PoolStats()), 9, "labels are bounded")
}

func numberedPool(i int) coordinator.Pool {
	return coordinator.Pool{VLLM: coordinator.NewestRelease(), ModelName: fmt.Sprintf("model-%d", i), TPSize: 1 + i%3}
}

// Pools whose connections stay do not give way.
func TestTooManyPools(t *testing.T) {
	server := startPools(t, nil, Config{MaxPools: 2, AcceptPool: memoryService})
	for i := range 2 {
		dialTest(t, server, client.WithPool("", numberedPool(i)))
	}
	_, err := client.Dial(t.Context(), server.Addrs()[0], client.WithPool("", numberedPool(2)))
	require.ErrorIs(t, err, client.ErrRefused)
	require.ErrorContains(t, err, "all described pools have connections, and there are max_pools of them: 2")
	dialTest(t, server, client.WithPool("", numberedPool(1)))
}

// Over memory each pool has its own blocks.
func TestPoolsOverMemory(t *testing.T) {
	own, err := memoryService(lookuptest.Blocks16)
	require.NoError(t, err)
	named, err := memoryService(numberedPool(1))
	require.NoError(t, err)
	server := startPools(t, own, Config{Pools: []ServedPool{{Name: "one", Service: named}}, AcceptPool: memoryService})
	hashes := coordinator.NewHashes(lookuptest.Chain("a", 8, 32), 32)
	plain, byName := dialTest(t, server), dialTest(t, server, client.WithPoolName("one"))
	described := dialTest(t, server, client.WithPool("two", numberedPool(2)))
	again := dialTest(t, server, client.WithPoolName("two"))
	require.NoError(t, plain.Store(t.Context(), coordinator.GroupRank{}, hashes))
	for tp := range 3 {
		require.NoError(t, described.Store(t.Context(), coordinator.GroupRank{TPRank: uint16(tp)}, coordinator.NewHashes(hashes.Bytes()[:64], 32)))
	}
	for want, c := range map[int64]*client.Client{128: plain, 0: byName, 32: described} {
		hit, err := c.Lookup(t.Context(), 128, hashes)
		require.NoError(t, err)
		require.Equal(t, want, hit.Tokens)
	}
	hit, err := again.Lookup(t.Context(), 128, hashes)
	require.NoError(t, err)
	require.EqualValues(t, 32, hit.Tokens)
	_, err = client.Dial(t.Context(), server.Addrs()[0], client.WithPoolName("three"))
	require.ErrorContains(t, err, `no pool of this name: "three"`)
	_, err = client.Dial(t.Context(), server.Addrs()[0], client.WithPool("one", numberedPool(2)))
	require.ErrorIs(t, err, client.ErrPoolDiffers)
	require.ErrorContains(t, err, `differs from the pool "one" that is configured: model_name is "model-1", described as "model-2"`)
	_, err = client.Dial(t.Context(), server.Addrs()[0], client.WithPool("two", numberedPool(4)))
	require.ErrorIs(t, err, client.ErrPoolDiffers, "the pool has connections")
	require.NoError(t, again.Close())
	require.NoError(t, described.Reset(t.Context()))
	require.NoError(t, described.Close())
	lookuptest.Eventually(t, "an engine that has changed gets its pool anew", func() bool {
		c, err := client.Dial(t.Context(), server.Addrs()[0], client.WithPool("two", numberedPool(4)))
		if err != nil {
			require.ErrorIs(t, err, client.ErrPoolDiffers)
			return false
		}
		pool, _ := c.Pool()
		require.Equal(t, "model-4", pool.Pool.ModelName)
		return c.Close() == nil
	})
	hit, err = plain.Lookup(t.Context(), 128, hashes)
	require.NoError(t, err)
	require.EqualValues(t, 128, hit.Tokens, "a reset is about one pool")
}

// A request that waits for the store is about the pool that its connection had then.
func TestPoolChangesBetweenRequests(t *testing.T) {
	store := lookuptest.Filled(t)
	gate, arrived := lookuptest.NewGate(), make(chan struct{}, 9)
	store.Before = func(ctx context.Context, op string, keys []string) error {
		if op == "exists" && strings.HasPrefix(keys[0], "model-3@") {
			arrived <- struct{}{}
			return gate.Wait(ctx)
		}
		return nil
	}
	shared := lookup.NewSharedBackend(store, patient, nil)
	accept := func(pool coordinator.Pool) (*lookup.Service, error) {
		return lookup.NewService(lookup.ServiceConfig{Pool: pool, Shared: shared})
	}
	server := startPools(t, nil, Config{Backend: shared, AcceptPool: accept})
	hashes := lookuptest.Chain("a", 2, 32)
	one, two := numberedPool(3), numberedPool(6) // one rank each
	for i, pool := range []coordinator.Pool{one, two} {
		c := dialTest(t, server, client.WithPool("", pool))
		require.NoError(t, c.Store(t.Context(), coordinator.GroupRank{}, coordinator.NewHashes(hashes[:(i+1)*32], 32)))
	}
	p := lookuptest.DialPeer(t, server.Addrs()[0])
	var batch []byte
	for _, pool := range []coordinator.Pool{one, two} {
		text, err := json.Marshal(pool)
		require.NoError(t, err)
		batch = append(batch, lookuptest.Encode([]byte("pool"), text)...)
		batch = append(batch, lookuptest.Encode([]byte("lookup"), u32s(33), []byte{0, 32}, hashes)...)
	}
	p.Send(t, batch)
	<-arrived // the first lookup waits for the store, and the second description has arrived behind it
	close(gate.Open)
	for _, hit := range []uint32{16, 32} {
		require.Equal(t, []byte{netproto.StatusDone}, p.Next(t)[0])
		require.Equal(t, u32s(hit, 0, hit), bytes.Join(p.Next(t), nil))
	}
}

// A refusal has as much as clients read, however much differs.
func TestDifferencesAreBounded(t *testing.T) {
	pool := coordinator.Pool{VLLM: coordinator.NewestRelease(), ModelName: "m", HashBlockSize: 16, SchedulerBlockSize: 32}
	other := pool
	pool.Groups = slices.Repeat([]coordinator.Group{{Kind: coordinator.FullAttention, BlockSize: 16}}, 64)
	other.Groups = slices.Repeat([]coordinator.Group{{Kind: coordinator.MLAAttention, BlockSize: 32}}, 900)
	shared := lookup.NewSharedBackend(&lookuptest.KeyStore{}, patient, nil)
	own, err := lookup.NewService(lookup.ServiceConfig{Pool: pool, Shared: shared})
	require.NoError(t, err)
	reply := describe(t, lookuptest.DialPeer(t, startPools(t, own, Config{Backend: shared}).Addrs()[0]), other)
	require.Len(t, reply, 3)
	require.LessOrEqual(t, len(reply[1]), maxReason)
	require.LessOrEqual(t, len(reply[2]), maxRefusal)
	var refusal api.Refusal
	require.NoError(t, json.Unmarshal(reply[2], &refusal))
	require.Equal(t, api.RefusalPoolDiffers, refusal.Refusal, string(reply[1]))
	require.NotEmpty(t, refusal.Differences)
}

// However other pools are named, one without a name gets a name.
func TestNamesRunOut(t *testing.T) {
	server := startPools(t, nil, Config{MaxPools: 300, AcceptPool: memoryService})
	long := coordinator.Pool{ModelName: strings.Repeat("m", 100)}
	c, err := client.Dial(t.Context(), server.Addrs()[0], client.WithPool("", long))
	require.NoError(t, err)
	pool, _ := c.Pool()
	require.NoError(t, c.Close())
	lookuptest.Eventually(t, "the name is taken by another", func() bool {
		c, err := client.Dial(t.Context(), server.Addrs()[0], client.WithPool(pool.Name, numberedPool(1)))
		if err == nil {
			t.Cleanup(func() { _ = c.Close() })
		}
		return err == nil
	})
	for i := 1; i < 5; i++ {
		dialTest(t, server, client.WithPool(fmt.Sprintf("%s-%d", pool.Name, i), numberedPool(i)))
	}
	again, _ := dialTest(t, server, client.WithPool("", long)).Pool()
	require.Equal(t, pool.Name+"-5", again.Name)
}

// A server that accepts no pools says so.
func TestNoFurtherPools(t *testing.T) {
	named, err := memoryService(numberedPool(1))
	require.NoError(t, err)
	server := startPools(t, nil, Config{Pools: []ServedPool{{Name: "one", Service: named}}})
	_, err = client.Dial(t.Context(), server.Addrs()[0], client.WithPool("two", numberedPool(1)))
	require.ErrorContains(t, err, "this server has other pools and accepts no further ones")
	_, err = client.Dial(t.Context(), server.Addrs()[0], client.WithPool("", numberedPool(2)))
	require.ErrorContains(t, err, `the description differs from the pool "one" that is configured: model_name is`)
	dialTest(t, server, client.WithPool("", numberedPool(1)))
}

// Pools over different stores are a mistake of the program.
func TestPoolsOfOneBackend(t *testing.T) {
	memory, err := memoryService(numberedPool(1))
	require.NoError(t, err)
	remote, err := lookup.NewService(lookup.ServiceConfig{Pool: numberedPool(2), Backend: &lookuptest.KeyStore{}})
	require.NoError(t, err)
	_, err = New(remote, Config{Pools: []ServedPool{{Name: "one", Service: memory}}})
	require.ErrorIs(t, err, api.ErrConfig)
	server := startPools(t, remote, Config{AcceptPool: memoryService})
	_, err = client.Dial(t.Context(), server.Addrs()[0], client.WithPool("", numberedPool(1)))
	require.ErrorContains(t, err, "another backend")
}

// What is no description is refused, and the connection keeps its pool.
func TestBadDescriptions(t *testing.T) {
	own, err := memoryService(lookuptest.Blocks16)
	require.NoError(t, err)
	server := startPools(t, own, Config{AcceptPool: memoryService})
	p := lookuptest.DialPeer(t, server.Addrs()[0])
	manyGroups := `{"groups": [` + strings.Repeat(`{"block_size": 16},`, 64) + `{"block_size": 16}]}`
	for text, want := range map[string]string{
		"":                              "description is empty",
		strings.Repeat(" ", 64<<10+1):   "description exceeds 65536 bytes",
		"{":                             "the description of the pool cannot be read: unexpected EOF",
		"[]":                            "the description of the pool cannot be read: a JSON array, and not an object",
		`{"tp": 2}`:                     `cannot be read: unknown field "tp"`,
		`{"tp_size": "4"}`:              "cannot be read: tp_size is a JSON string, want a whole number",
		`{"tp_size": 4.0}`:              "tp_size is a JSON number 4.0, want a whole number",
		`{"use_eagle": 1}`:              "use_eagle is a JSON number, want true or false",
		`{"vllm": 0.33}`:                "vllm is a JSON number, want a string",
		`{"groups": {}}`:                "groups is a JSON object, want a list",
		`{"groups": ["mamba"]}`:         "groups is a JSON string, want an object",
		`{"groups": [{"kind": 3}]}`:     "groups.kind is a JSON number, want a string",
		`{"retention_interval": true}`:  "retention_interval is a JSON bool, want a whole number",
		`{} {}`:                         "text behind the object",
		`{"name": "", "tp_size": 2}`:    "a pool's name is 1 to 255 printable ASCII characters",
		`{"name": "a b", "tp_size": 2}`: "a pool's name is 1 to 255 printable ASCII characters",
		`{"name": "nobody"}`:            `no pool of this name: "nobody"`,
		`{"tp_size": -1}`:               "the described pool: tp_size is -1, want 1 to 16384",
		manyGroups:                      "a pool of 65 groups; at most 64 are served",
		`{"tp_size": 5000}`:             "too many groups and ranks for a described pool: 5000, at most 4096",
		`{"model_name": "` + strings.Repeat("m", 513) + `"}`: "model_name is too long for a described pool: 513 bytes, at most 512",
		`{"vllm": "` + conformance.UnknownRelease + `"}`:     "unknown vLLM release",
	} {
		frames := describe(t, p, []byte(text))
		require.NotNil(t, refusalIn(frames), "%s: %q", text, frames)
		require.Contains(t, string(frames[1]), want, text)
		require.Equal(t, []byte{netproto.StatusFailed}, p.Ask(t, []byte("lookup"), u32s(16), []byte{0, 1}, []byte("a"))[0], "the connection has no pool")
	}
	require.Equal(t, []byte{1}, p.Ask(t, []byte("ping"))[0])
}

// The empty name is that of the server's own pool, to which a connection can come back.
func TestOwnPoolByName(t *testing.T) {
	own, err := memoryService(lookuptest.Blocks16)
	require.NoError(t, err)
	server := startPools(t, own, Config{AcceptPool: memoryService})
	p := lookuptest.DialPeer(t, server.Addrs()[0])
	lookup := [][]byte{[]byte("lookup"), u32s(16), {0, 32}, lookuptest.Chain("a", 1, 32)}
	require.Equal(t, []byte{1}, describe(t, p, numberedPool(1))[0])
	require.Equal(t, "model-1", poolOf(t, p).Pool[:7])
	describe(t, p, []byte("{}x")) // refused
	require.Equal(t, api.RefusalNoPool, refusalIn(p.Ask(t, lookup...)).Refusal)
	var reply api.Pool
	require.NoError(t, json.Unmarshal(describe(t, p, []byte(`{"name": ""}`))[1], &reply))
	require.Empty(t, reply.Name)
	require.Equal(t, server.pools.own.digest, reply.Digest)
	require.Equal(t, [][]byte{u32s(0)}, p.Ask(t, lookup...))

	server = startPools(t, nil, Config{AcceptPool: memoryService})
	frames := describe(t, lookuptest.DialPeer(t, server.Addrs()[0]), []byte(`{"name": ""}`))
	require.Equal(t, &api.Refusal{Refusal: api.RefusalNoPool, Request: "pool"}, refusalIn(frames), "%q", frames)
}

// No description makes a server fail, and those of one pool give the same pool.
func FuzzDescription(f *testing.F) {
	for _, pool := range []coordinator.Pool{{}, engine(), numberedPool(3)} {
		text, err := json.Marshal(pool)
		require.NoError(f, err)
		f.Add(text)
	}
	f.Add([]byte(`{"name": "x"}`))
	own, err := memoryService(engine())
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, text []byte) {
		server, err := New(own, Config{MaxPools: 2, AcceptPool: func(pool coordinator.Pool) (*lookup.Service, error) {
			return lookup.NewService(lookup.ServiceConfig{Pool: pool, Backend: &lookuptest.KeyStore{}})
		}})
		require.NoError(t, err)
		setup, err := server.describedPool(text, nil)
		if err != nil {
			return
		}
		again, err := server.describedPool(text, nil)
		require.NoError(t, err)
		require.Same(t, setup.pool, again.pool)
		_, err = json.Marshal(setup.pool.reply(setup.pool.service.Coordinator()))
		require.NoError(t, err)
	})
}
