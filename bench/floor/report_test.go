package floor

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/bench/measure"
)

// A percentile is that of all rounds; a ratio is the median of the rounds' ratios.
func TestSetTimes(t *testing.T) {
	round := func(us ...float64) []time.Duration {
		var times []time.Duration
		for _, v := range us {
			times = append(times, time.Duration(v*1000))
		}
		return times
	}
	var floor, hitline, misses times
	for _, us := range []float64{10, 20, 30} {
		floor.add(round(us, us, us))
	}
	for _, us := range []float64{11, 24, 30} {
		hitline.add(round(us, us-1, us+1))
		misses.add(round(us, 2*us, us/2))
	}
	var r Report
	r.setTimes(&floor, &hitline)
	assert.Equal(t, []float64{20, 30, 30}, []float64{r.FloorP50us, r.FloorP99us, r.FloorMaxus})
	assert.Equal(t, []float64{24, 31, 31}, []float64{r.HitlineP50us, r.HitlineP99us, r.HitlineMaxus})
	assert.Equal(t, []float64{1.1, 1, 1.2}, []float64{r.Ratio, r.RatioMin, r.RatioMax}, "not 24 to 20")

	assert.Equal(t, &AnchoredReport{
		HitP50us: 24, HitRatio: 1.1, HitRatioMin: 1, HitRatioMax: 1.2, HitP99us: 31, HitRatio99: 1.2,
		MissP50us: 22, MissRatio: 1.1, MissRatioMin: 1, MissRatioMax: 1.2, MissP99us: 60, MissRatio99: 2.2,
	}, newAnchoredReport(&floor, &hitline, &misses))

	floor = times{} // one round of three is slow
	for _, us := range []float64{1, 1, 50} {
		floor.add(round(us, us, us))
	}
	_, p99, longest := floor.percentiles()
	assert.Equal(t, []float64{50, 50}, []float64{p99, longest}, "not the median of the rounds' percentiles, 1")
}

// The keys are a contract with those who read the line.
func TestReportKeys(t *testing.T) {
	always := []string{
		"chains", "cores", "dialect", "entries", "floor_cpu_us", "floor_max_us", "floor_p50_us", "floor_p99_us", "hashes", "hitline_max_us", "hitline_p50_us",
		"hitline_p99_us", "llc_bytes", "ratio", "ratio_max", "ratio_min", "requests", "rounds", "setup", "working_set_bytes", "wrong",
	}
	keys := func(r Report) []string {
		var out bytes.Buffer
		require.NoError(t, r.WriteJSON(&out))
		require.Equal(t, 1, bytes.Count(out.Bytes(), []byte("\n")))
		var got map[string]any
		require.NoError(t, json.Unmarshal(out.Bytes(), &got))
		return slices.Sorted(maps.Keys(got))
	}
	assert.Equal(t, always, keys(Report{}))
	idle, cpu := 0.0, 2.5
	full := Report{
		Setup: measure.NewSetup(3), Connect: "tcp://h:1", Pipeline: 8, FloorRPS: 1, HitlineRPS: 2, RPSRatio: 3, RPSRatioMin: 4, RPSRatioMax: 5,
		IdleCPU: &idle, HitlineCPUus: &cpu, Cores: []int{0, 1},
	}
	more := []string{"connect", "pipeline", "floor_rps", "hitline_rps", "rps_ratio", "rps_ratio_min", "rps_ratio_max", "idle_cpu_ms_per_s", "hitline_cpu_us"}
	assert.ElementsMatch(t, slices.Concat(always, more), keys(full))

	var table bytes.Buffer
	require.NoError(t, full.WriteTable(&table))
	assert.Contains(t, table.String(), ", --seed 3\n")
	assert.Contains(t, table.String(), "cores        client 0, servers 1\n")
	assert.Contains(t, table.String(), "pipelined    8 under way: floor 1 a second, hitline 2\nratio        3.000 (4.000 to 5.000)\n")
	assert.Contains(t, table.String(), "us, 2.50 us of CPU\n")
	assert.Contains(t, table.String(), "idle         0.00 ms of CPU a second\n")
	table.Reset()
	require.NoError(t, Report{}.WriteTable(&table))
	assert.Contains(t, table.String(), "cores        not pinned\n")
	assert.NotContains(t, table.String(), "idle")
	assert.NotContains(t, table.String(), "pipelined")
}

func TestLastLevelCache(t *testing.T) {
	dir := fstest.MapFS{}
	assert.Zero(t, lastLevelCache(dir))
	for name, size := range map[string]string{"index0": "48K\n", "index2": "2048K\n", "index3": "266240K\n", "index4": "?"} {
		dir[name+"/size"] = &fstest.MapFile{Data: []byte(size)}
	}
	assert.EqualValues(t, 260<<20, lastLevelCache(dir))
	dir["index5/size"] = &fstest.MapFile{Data: []byte("1G\n")}
	assert.EqualValues(t, 1<<30, lastLevelCache(dir))
}

// small returns options that are good and quick.
func small() Options {
	return Options{
		Hashes: 50, HashTokens: 16, Entries: 100, Rounds: 3, Requests: 70, MaxCache: 1 << 10, Seed: 1,
		ClientCore: 0, ServerCore: 1, Timeout: 20 * time.Second,
		OnNote: func(string) {}, OnStep: func(string, int, int) {},
	}
}

func TestValidate(t *testing.T) {
	require.NoError(t, small().Validate())
	for want, break_ := range map[string]func(*Options){
		"0 hashes; 1 to 2000000 fit": func(o *Options) { o.Hashes = 0 },
		"2000001 hashes;":            func(o *Options) { o.Hashes = 2_000_001 },
		"a hash of 0 tokens;":        func(o *Options) { o.HashTokens = 0 },
		"0 entries;":                 func(o *Options) { o.Entries = 0 },
		"0 rounds;":                  func(o *Options) { o.Rounds = 0 },
		"-1 requests a round;":       func(o *Options) { o.Requests = -1 },
		"20 rounds of 10000000 requests; give at most 50000000": func(o *Options) { o.Rounds, o.Requests = 20, 10_000_000 },
		"1025 requests under way;":                              func(o *Options) { o.Pipeline = 1025 },
		"a cache of 0 bytes;":                                   func(o *Options) { o.MaxCache = 0 },
		"client on core 1, servers o":                           func(o *Options) { o.ClientCore = 1 },
		"client on core -1,":                                    func(o *Options) { o.ClientCore = -1 },
		"a timeout of 0s;":                                      func(o *Options) { o.Timeout = 0 },
	} {
		o := small()
		break_(&o)
		err := o.Validate()
		require.ErrorIs(t, err, measure.ErrOptions)
		assert.ErrorContains(t, err, want)
	}
}

func TestDefaultRequests(t *testing.T) {
	for hashes, want := range map[int]int{64: 20_000, 8192: 4096, 131_072: 256, 2_000_000: 200} {
		assert.Equal(t, want, Options{Hashes: hashes}.requests())
	}
	assert.Equal(t, 7, Options{Hashes: 1, Requests: 7}.requests())
}
