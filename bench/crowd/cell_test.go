//go:build linux

package crowd

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/process"
	"github.com/hitline/hitline/internal/storetest"
	"github.com/hitline/hitline/lookup/api"
)

// options returns those of a small crowd.
func options(t *testing.T) Options {
	python := storetest.RequireMooncake(t, storetest.MooncakeRelease).Python()
	hitline := filepath.Join(t.TempDir(), "hitline")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", hitline, "../../cmd/hitline").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return Options{
		Trace: excerpt, Ways: map[int][]Way{2: {Own, Shared, Whole}}, Engines: []int{10}, Rounds: 1,
		Lead: time.Second, Window: 3 * time.Second, CacheTokens: 40_000, StoreTokens: 48_000, Seed: 1,
		Hitline: hitline, Python: python, Timeout: time.Minute,
		OnNote: func(text string) { t.Log(text) }, OnStep: func(string, int, int) {},
	}
}

// Every way serves the same turns, over a store that is full.
func TestRun(t *testing.T) {
	o := options(t)
	report, err := Run(t.Context(), o)
	require.NoError(t, err)
	require.Len(t, report.Rows, 3)
	own := report.Rows[0]
	for _, f := range report.Rows {
		assert.Positive(t, f.Turns)
		assert.Equal(t, own.Turns, f.Turns)
		assert.Equal(t, own.EngineTokens, f.EngineTokens)
		assert.Equal(t, own.PoolTokens+own.OtherTokens, f.PoolTokens+f.OtherTokens)
		assert.Equal(t, own.SaveKeys, f.SaveKeys)
		assert.Equal(t, f.SaveKeys, f.SaveLeases+f.Puts, "a key is there, or it is put")
		assert.Positive(t, f.LookupKeys)
		assert.LessOrEqual(t, f.LookupLeases, f.LookupKeys)
		assert.LessOrEqual(t, f.LookupKeys, own.LookupKeys, "nothing asks for more than vLLM's own")
		assert.Positive(t, f.MasterCPU)
		assert.Equal(t, f.Way.isHitline(), f.HitlineCPU > 0)
		assert.Greater(t, f.StoreKeys, int64(o.StoreTokens/blockTokens*10*2*3/4), "it is as full as it gets")
	}
	var text bytes.Buffer
	require.NoError(t, report.WriteTable(&text))
	assert.Contains(t, text.String(), "\nTP 2\n")
}

// What was counted in several windows is added. The store's keys are the last ones.
func TestAddSince(t *testing.T) {
	var f Figures
	before := reading{at: time.Now(), late: 1}
	for keys := range int64(2) {
		after := reading{at: before.at.Add(time.Second), masterCPU: time.Second / 2, late: 3, master: map[string]int64{keysMetric: keys}}
		after.addSince(before, &f)
	}
	assert.Equal(t, Figures{Seconds: 2, MasterCPU: 1, Late: 4, StoreKeys: 1}, f)
}

// The places of the tokens of a shared hitline are those that the generator knows: what engines held, what the pool gave, and
// the length of all prompts.
func TestAccount(t *testing.T) {
	o := options(t)
	found, err := process.FindMooncake(t.Context(), o.Python, o.Timeout)
	require.NoError(t, err)
	s, err := readSessions(t.Context(), o.Trace)
	require.NoError(t, err)
	c := &cell{o: o, tp: 2, way: Shared, engines: 10, total: &tally{}}
	defer c.stop()
	require.NoError(t, c.start(t.Context(), s, found))
	var prompts, all, held int64 // of the turns that are asked for
	ahead := newTurns(s, c.engines, o.CacheTokens/blockTokens, o.Seed)
	ahead.fill(o.StoreTokens / blockTokens * c.engines)
	one := ahead.next()
	for end := one.at + o.Window; one.at < end; one = ahead.next() {
		if one.start < one.hittable() {
			prompts++
			all += int64(one.tokens)
			held += int64(one.start * blockTokens)
		}
	}
	require.NoError(t, c.window(t.Context(), o.Window, c.total))
	var told api.PoolTokens
	require.Eventually(t, func() bool { // a prompt is counted ten seconds after it was last asked about
		stat, err := c.lookups[0].hitline.Stat(t.Context())
		require.NoError(t, err)
		require.NotNil(t, stat.PoolTokens)
		told = *stat.PoolTokens
		return told.Prompts == prompts
	}, time.Minute, 100*time.Millisecond)
	var sum int64
	for _, n := range told.Tokens {
		sum += n
	}
	assert.Equal(t, all, sum)
	assert.Equal(t, held, told.Tokens["engine"])
	assert.Equal(t, c.total.f.PoolTokens, told.Tokens["pool"])
}

func TestRunFails(t *testing.T) {
	o := Options{
		Trace: excerpt, Ways: map[int][]Way{1: {None}}, Engines: []int{1}, Rounds: 1, Lead: 1, Window: 1, CacheTokens: blockTokens,
		StoreTokens: 1000 * blockTokens, Timeout: time.Minute, Python: "/bin/false",
	}
	_, err := Run(t.Context(), o)
	require.ErrorIs(t, err, measure.ErrOptions)
	require.ErrorContains(t, err, "pip install mooncake-transfer-engine-non-cuda")
	for name, change := range map[string]func(o *Options){
		"a size that does not divide 8": func(o *Options) { o.Ways = map[int][]Way{3: {None}} },
		"the largest first":             func(o *Options) { o.Engines = []int{Largest, 10} },
		"too many for the store":        func(o *Options) { o.Engines, o.StoreTokens = []int{1000}, 1_000_000 },
		"too many hitlines":             func(o *Options) { o.Engines, o.Ways = []int{33}, map[int][]Way{1: {Each}} },
		"no way":                        func(o *Options) { o.Ways = map[int][]Way{1: {}} },
		"another way":                   func(o *Options) { o.Ways = map[int][]Way{1: {"x"}} },
	} {
		bad := o
		change(&bad)
		_, err := Run(t.Context(), bad)
		require.ErrorIs(t, err, measure.ErrOptions, name)
		require.NotContains(t, err.Error(), "pip install", name)
	}
}
