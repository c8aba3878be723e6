package statuspage

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/client"
	"github.com/hitline/hitline/lookup/server"
	"github.com/hitline/hitline/lookup/snapshot"
)

// What /status tells is what the server does.
func TestStatus(t *testing.T) {
	service := newService(t, lookup.ServiceConfig{Pool: coordinator.Pool{HashBlockSize: 16, ModelName: "m"}, Memory: index.Config{MaxBytes: 64 << 20, MaxEntries: 1000}})
	other := newService(t, lookup.ServiceConfig{Pool: coordinator.Pool{HashBlockSize: 32, VLLM: "0.33.0"}})
	p := pageOf(t, service, server.Config{
		Listeners: []server.Listener{{Address: "tcp://127.0.0.1:0"}}, Version: "v1", Pools: []server.ServedPool{{Name: "second", Service: other}},
	}, Options{})
	start(t, p)
	c, err := client.Dial(t.Context(), p.server.Addrs()[0], client.WithTimeout(lookuptest.Patience))
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.Store(t.Context(), coordinator.GroupRank{}, hashesOfPrompt(30)))
	for range 3 {
		_, err = c.Lookup(t.Context(), 640, hashesOfPrompt(40))
		require.NoError(t, err)
	}
	_, err = c.Lookup(t.Context(), 641, hashesOfPrompt(40))
	require.ErrorIs(t, err, client.ErrRefused)
	lookUp(t, other, 40) // in process: the latency does not count it

	st := statusOf(t, p)
	assert.True(t, st.Ready)
	assert.Empty(t, st.NotReadyReason)
	assert.Equal(t, p.server.Instance().ID, st.Instance)
	assert.Equal(t, p.server.Instance().StartTime, st.StartTime)
	assert.Positive(t, st.UptimeSeconds)
	assert.Equal(t, []string{"v1", "memory", ""}, []string{st.Version, st.Backend, st.BackendState})
	assert.NotEmpty(t, st.Kernel)
	assert.Nil(t, st.Snapshot)
	assert.False(t, st.TokenNeeded)
	assert.EqualValues(t, 4, st.Stat.Lookups, "of all pools")

	require.Len(t, st.Pools, 2)
	own := st.Pools[0]
	assert.Equal(t, 30.0/40, *own.Recent.HitRatio)
	require.Len(t, own.Minutes, 1)
	assert.EqualValues(t, 3*480, own.Minutes[0].HitTokens)
	own.Recent, own.Minutes = recent{}, nil
	stat := service.Stat()
	assert.Equal(t, poolStatus{
		Model: "m", VLLM: stat.VLLM, HashBlockSize: 16, Entries: 30, MaxEntries: 1000, Bytes: stat.Bytes, MaxBytes: 64 << 20,
		Lookups: 3, HitTokens: 3 * 480, MissTokens: 3 * 160,
	}, own)
	assert.Equal(t, []any{"second", 32, false}, []any{st.Pools[1].Name, st.Pools[1].HashBlockSize, st.Pools[1].Described})

	assert.EqualValues(t, 3, st.Latency.Count)
	assert.Positive(t, *st.Latency.P50)
	assert.LessOrEqual(t, *st.Latency.P50, *st.Latency.P99)
	assert.Equal(t, 1, st.Connections.Total)
	require.Len(t, st.Connections.List, 1)
	assert.Equal(t, st.Connections.Shown, len(st.Connections.List))
	assert.EqualValues(t, 6, st.Connections.List[0].Requests, "the first is the client's ping")
	require.Len(t, st.Refusals, 1)
	assert.Contains(t, st.Refusals[0].Error, "641")
}

// A server that has nothing to tell yet has empty lists and no numbers.
func TestStatusWithoutData(t *testing.T) {
	p, _ := plainPage(t)
	body := ask(p, http.MethodGet, "/status", "").Body.String()
	for _, want := range []string{
		`"latency":{"count":0,"p50":null,"p99":null}`, `"snapshot":null`, `"refusals":[]`,
		`"connections":{"total":0,"shown":0,"list":[]}`, `"recent":{"hit_ratio":null,`, `"not_ready_reason":"not listening yet"`, `"ready":false`,
	} {
		assert.Contains(t, body, want)
	}
}

func TestSnapshotStatus(t *testing.T) {
	want := snapshot.Status{Path: "/p", Written: time.Now().UTC().Truncate(time.Second), Entries: 5, Failed: 1, Error: "disk"}
	p := pageOf(t, newService(t, lookup.ServiceConfig{Pool: lookuptest.Blocks16}), server.Config{}, Options{Snapshot: func() *snapshot.Status { return &want }})
	assert.Equal(t, &want, statusOf(t, p).Snapshot)
}

func TestRemoteBackend(t *testing.T) {
	service := newService(t, lookup.ServiceConfig{Pool: lookuptest.Blocks16, Backend: &lookuptest.KeyStore{}})
	st := statusOf(t, pageOf(t, service, server.Config{}, Options{}))
	assert.Equal(t, "keys", st.Backend)
	assert.Equal(t, "closed", st.BackendState)
	assert.Zero(t, st.Pools[0].MaxBytes)
}

// However many pools there are, maxPools are listed, and stat counts all of them.
func TestManyPools(t *testing.T) {
	var cfg server.Config
	for i := range maxPools + 5 {
		named := newService(t, lookup.ServiceConfig{Pool: lookuptest.Blocks16})
		store(t, named, 1)
		lookUp(t, named, 2)
		cfg.Pools = append(cfg.Pools, server.ServedPool{Name: strings.Repeat("p", i+1), Service: named})
	}
	got := statusOf(t, pageOf(t, nil, cfg, Options{}))
	assert.Len(t, got.Pools, maxPools)
	n := int64(maxPools + 5)
	assert.Equal(t, []int64{n, n, n, 16 * n}, []int64{got.Stat.Pools, got.Stat.Entries, got.Stat.Lookups, got.Stat.HitTokens})
}

// Text of a peer is no HTML in the reply, even for a browser that took it for a document.
func TestTextOfPeers(t *testing.T) {
	const text = `<script>alert(1)</script><img src=x onerror='alert("2")'>`
	service := newService(t, lookup.ServiceConfig{Pool: coordinator.Pool{HashBlockSize: 16, ModelName: text}})
	p := pageOf(t, service, server.Config{Pools: []server.ServedPool{{Name: "<script>", Service: service}}}, Options{})
	w := ask(p, http.MethodGet, "/status", "")
	assert.Equal(t, "application/json", w.Header().Get("Content-Type"))
	assert.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"))
	assert.NotContains(t, w.Body.String(), "<")
	assert.Equal(t, text, statusOf(t, p).Pools[0].Model)
}

// What a router tells is in the reply as it is, and drawn by the page.
func TestRouterStatus(t *testing.T) {
	p, _ := plainPage(t)
	assert.NotContains(t, ask(p, http.MethodGet, "/status", "").Body.String(), `"router"`)
	p.options.Router = func() any { return map[string]int{"models": 7} }
	assert.Contains(t, ask(p, http.MethodGet, "/status", "").Body.String(), `"router":{"models":7}`)
}
