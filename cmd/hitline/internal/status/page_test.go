package status

import (
	"html"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/tokens"
	"github.com/hitline/hitline/router"
	"github.com/hitline/hitline/router/events"
)

// someStatus is that of a server with a pool that evicts.
func someStatus() Status {
	counted := map[string]int64{"pool": 600, "evicted": 300, "new": 100, "engine": 1000, "rules": 7}
	share := 0.6
	rate := Rate{Seconds: 300, Tokens: counted, Prompts: 5, Lookups: 1500, HitShare: &share}
	rates := Rates{"5m": rate, "1h": rate, "24h": rate}
	p50, p99, alone, measured := 20e-6, 0.0021, 0.01, 0.5
	stat := api.Stat{Version: "v1", StartTime: time.Now().Add(-3 * time.Hour), Lookups: 1500, Evicted: 9, Entries: 4096, MaxEntries: 4096, PoolTokens: &api.PoolTokens{
		Tokens: counted, Prompts: 5, RetentionSeconds: 90,
		Curve: []api.SizedPool{
			{Size: "0.25", Blocks: 1024, HitShare: .2}, {Size: "0.5", Blocks: 2048, HitShare: .4}, {Size: "1", Blocks: 4096, HitShare: .6},
			{Size: "2", Blocks: 8192, HitShare: .75}, {Size: "4", Blocks: 16384, HitShare: .8}, {Size: "inf", HitShare: .81},
		},
		MeasuredHitShare: &measured,
		Askers:           []api.Asker{{Name: "engine-1", Prompts: 5, Tokens: counted, FirstBlockShared: &alone, LastSeen: time.Now()}},
		LostMost:         []api.LostRequest{{Asker: "engine-1", Tokens: 123456, Place: "evicted", Block: 17, At: time.Now()}},
	}}
	return Status{
		Ready: true, Time: time.Now(), Stat: stat, Rates: rates, Latency: Latency{Lookups: 1500, P50: &p50, P99: &p99},
		Pools: []Pool{{Name: "a", Model: "m", Stat: stat, Rates: rates}},
	}
}

// textOf returns what a reader of a page sees.
func textOf(t *testing.T, st Status) string {
	t.Helper()
	page, err := Render(st)
	require.NoError(t, err)
	_, main, _ := strings.Cut(string(page), "<main>")
	main, _, _ = strings.Cut(main, "</main>")
	text := regexp.MustCompile(`<[^>]*>`).ReplaceAllString(main, " ")
	return regexp.MustCompile(`\s+`).ReplaceAllString(html.UnescapeString(text), " ")
}

// The page and the terminal have the figures of the status, and what to do.
func TestFigures(t *testing.T) {
	page, terminal := textOf(t, someStatus()), Text(someStatus())
	for _, want := range []string{"60.0 %", "20 µs", "2.1 ms", "evicted", "30.0 %", "make the pool larger", "Twice the pool: +15.0 points; half of it: -20.0", "It gives 50.0 %, and an LRU pool of its size would give 60.0 %"} {
		assert.Contains(t, page, want)
		assert.Contains(t, terminal, want)
	}
	for _, want := range []string{"engine-1", "123 456", "17", "hashes otherwise than the others", "about 90 s", "1.0 %", "today: 4 096 blocks", "measured 50.0 %"} {
		assert.Contains(t, page, want)
	}
	assert.Contains(t, terminal, "a     m")
	st := someStatus()
	st.Pools[0].Stat.Curve = []api.SizedPool{{Blocks: 1024, HitShare: .2}, {Blocks: 4096, HitShare: .6}}
	assert.Contains(t, textOf(t, st), "An LRU pool of 4k blocks or more would give all")
	assert.NotContains(t, textOf(t, st), "today")
}

// What is not known yet is told so, and a server in trouble says so first.
func TestStates(t *testing.T) {
	none := Status{Ready: true, Time: time.Now(), Pools: []Pool{}, Rates: Rates{"5m": {}, "1h": {}, "24h": {}}}
	page := textOf(t, none)
	assert.Contains(t, page, "no prompts yet")
	assert.Contains(t, page, "Too early")
	assert.NotEmpty(t, Text(none))

	st := someStatus()
	st.Ready, st.NotReadyReason = false, "the store <fails>"
	st.Store = &Store{Name: "redis", State: "open", Error: "connection refused", Calls: map[string]Latency{"exists": {}}}
	st.Pools = append(st.Pools, st.Pools[0])
	st.Pools[0].Stat.BackendTimeouts, st.Pools[1].Stat.BackendTimeouts, st.Pools[1].Stat.BackendErrors = 20, 4, 7
	st.Router = newRouter(nil, []router.SourceStatus{{Status: events.Status{Name: "e", Stale: true, LastError: "no route"}, Engine: "engine-7", Model: "m"}})
	page = textOf(t, st)
	for _, want := range []string{"not ready: the store <fails>", "breaker open", "connection refused", "24 calls were late, and 7 failed", "engine-7", "not followed: no route", "sources 0 of 1 followed"} {
		assert.Contains(t, page, want)
	}
	terminal := Text(st)
	assert.Contains(t, terminal, "NOT READY: the store <fails>")
	assert.Contains(t, terminal, "0 of 1 sources followed")
	assert.Contains(t, terminal, "store: breaker open, since the start 24 calls late, 7 failed; connection refused\n")
}

// Names of pools, models and engines stay text.
func TestHostileNames(t *testing.T) {
	const hostile = `"><script>alert(1)</script>`
	st := someStatus()
	st.Pools[0].Name, st.Pools[0].Model = hostile, hostile
	st.Pools[0].Stat.Askers[0].Name = hostile
	st.Stat.Version = hostile
	page, err := Render(st)
	require.NoError(t, err)
	assert.NotContains(t, string(page), hostile)
	assert.Equal(t, 1, strings.Count(string(page), "<script>"))
	assert.NotContains(t, Text(Status{Pools: []Pool{{Name: "\x1b[2J", Stat: st.Stat}}, Rates: Rates{}}), "\x1b")
}

// The content policy allows the page's own style and script: they are in it as they are hashed.
func TestContentPolicy(t *testing.T) {
	page, err := Render(someStatus())
	require.NoError(t, err)
	for _, tag := range []string{"style", "script"} {
		_, text, _ := strings.Cut(string(page), "<"+tag+">")
		text, _, _ = strings.Cut(text, "</"+tag+">")
		require.NotEmpty(t, text)
		require.Contains(t, pageText, text)
	}
	assert.NotContains(t, string(page), "style=")
	assert.NotContains(t, string(page), "onclick")
}

// A history tells of the time that it has seen, by steps.
func TestHistory(t *testing.T) {
	h := newHistories()
	stats := map[string]api.Stat{"a": {Lookups: 0, PoolTokens: &api.PoolTokens{Tokens: map[string]int64{}}}}
	h.add(0, stats)
	for i := range 60 {
		stats["a"] = api.Stat{Lookups: int64(10 * (i + 1)), PoolTokens: &api.PoolTokens{Tokens: map[string]int64{"pool": int64(i + 1)}}}
		h.add(time.Duration(i+1)*time.Minute, stats)
	}
	rates := ratesOf(h.all, time.Hour)
	assert.EqualValues(t, 5, rates["5m"].Tokens["pool"])
	assert.EqualValues(t, 300, rates["5m"].Seconds)
	assert.EqualValues(t, 60, rates["24h"].Tokens["pool"])
	parts := h.all.halfMinutes()
	assert.Len(t, parts, 120)
	assert.Equal(t, []int64{1, 0, 1}, []int64{parts[117].tokens[tokens.InPool], parts[118].tokens[tokens.InPool], parts[119].tokens[tokens.InPool]})
	assert.Contains(t, hour(parts), `<path class="pool" d="M1 0.0h1v40.0h-1zM3 0.0h1`)
	delete(stats, "a")
	h.add(61*time.Minute, stats)
	assert.EqualValues(t, 60, ratesOf(h.all, time.Hour)["24h"].Tokens["pool"], "what a pool has counted that has gone")
	assert.NotContains(t, h.ofPools, "a")
}
