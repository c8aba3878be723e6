package load

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"
	"testing"
	"testing/fstest"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/process"
	"github.com/hitline/hitline/bench/workload"
)

// intsBelow iterates over 0, 1, … n-1.
func intsBelow(n int) iter.Seq[int] {
	return func(yield func(int) bool) {
		for i := 0; i < n && yield(i); i++ {
		}
	}
}

func TestSweepPlan(t *testing.T) {
	mean := func(connections []int) time.Duration { // what a run takes beside its duration
		whole := time.Duration(0)
		for _, n := range connections {
			whole += SweepOptions{}.warmup(n) + overhead
		}
		return whole / time.Duration(len(connections))
	}
	all, some := powers(2, 4096), powers(4, 4096)
	for name, tt := range map[string]struct {
		cores, most        int
		o                  SweepOptions
		client, server     int // cores
		loops, connections []int
		each               time.Duration
		notes              string
	}{
		"one core":      {1, 5000, SweepOptions{}, 1, 1, []int{1}, all, sweepTime/39 - mean(all), "client and server share the cores"},
		"none known":    {0, 5000, SweepOptions{}, 0, 0, []int{1}, all, sweepTime/39 - mean(all), "share the cores"},
		"two cores":     {2, 5000, SweepOptions{}, 1, 1, []int{1}, all, sweepTime/39 - mean(all), ""},
		"three cores":   {3, 5000, SweepOptions{}, 1, 2, []int{1, 2}, all, sweepTime/78 - mean(all), ""},
		"four cores":    {4, 5000, SweepOptions{}, 2, 2, []int{1, 2}, all, sweepTime/78 - mean(all), ""},
		"one round":     {13, 5000, SweepOptions{Rounds: 1}, 6, 7, []int{1, 2, 4, 7}, all, sweepTime/52 - mean(all), ""},
		"thirteen":      {13, 5000, SweepOptions{}, 6, 7, []int{1, 2, 4, 7}, some, sweepTime/84 - mean(some), ""},
		"many cores":    {256, 5000, SweepOptions{}, 128, 128, powers(2, 128), some, leastDuration, ""},
		"few files":     {4, 896, SweepOptions{}, 2, 2, []int{1, 2}, powers(2, 512), sweepTime/60 - mean(powers(2, 512)), "the limit of open files allows 896 connections"},
		"given":         {4, 896, SweepOptions{Loops: []int{2, 1, 2}, Connections: []int{50, 5}, Load: Options{Duration: 3}}, 2, 2, []int{1, 2}, []int{5, 50}, 3, "the limit of open files"},
		"more loops":    {4, 5000, SweepOptions{Loops: []int{3}}, 2, 2, []int{3}, all, sweepTime/39 - mean(all), "3 loops have only 2 cores: the slope leaves them out"},
		"two on one":    {2, 5000, SweepOptions{Loops: []int{2}}, 1, 1, []int{2}, all, sweepTime/39 - mean(all), "2 loops have only 1 core:"},
		"too few files": {4, 100, SweepOptions{Connections: []int{200}}, 2, 2, []int{1, 2}, []int{200}, time.Second, "200 connections may be more than the limit of open files allows, which is 100"},
	} {
		t.Run(name, func(t *testing.T) {
			tt.o.Rounds = cmp.Or(tt.o.Rounds, 3)
			p := sweepOf(tt.o, tt.cores, tt.most)
			assert.Equal(t, []int{tt.client, tt.server}, []int{len(p.Client), len(p.Server)})
			assert.Equal(t, tt.loops, p.o.Loops)
			assert.Equal(t, tt.connections, p.o.Connections)
			assert.InDelta(t, tt.each, p.o.Load.Duration, float64(time.Microsecond))
			notes := p.notes()
			if tt.notes == "" {
				assert.Empty(t, notes)
			} else {
				assert.Contains(t, fmt.Sprint(notes), tt.notes)
			}
			if tt.o.Load.Duration == 0 {
				assert.LessOrEqual(t, time.Duration(p.Rounds*len(p.Points))*(p.o.Load.Duration+mean(p.o.Connections)), 75*time.Second)
			}
		})
	}
}

// sweepOf returns a planned sweep on so many cores, with so many connections at most.
func sweepOf(o SweepOptions, cores, most int) *sweep {
	return newSweep(o, process.Halves(slices.Collect(intsBelow(cores)), fstest.MapFS{}), most)
}

// Each round has all points, in an order of its own that the seed decides.
func TestSweepOrder(t *testing.T) {
	order := func(seed uint64, round int) (points [][2]int) {
		s := sweepOf(SweepOptions{Load: Options{Seed: seed}, Loops: []int{1, 2, 4}, Connections: powers(2, 64), Rounds: 3}, 8, 100)
		for _, p := range s.order(round) {
			points = append(points, [2]int{p.Loops, p.Connections})
		}
		return points
	}
	var all [][2]int
	for _, loops := range []int{1, 2, 4} {
		for _, connections := range powers(2, 64) {
			all = append(all, [2]int{loops, connections})
		}
	}
	first, second := order(1, 0), order(1, 1)
	assert.ElementsMatch(t, all, first)
	assert.ElementsMatch(t, all, second)
	assert.NotEqual(t, all, first)
	assert.NotEqual(t, first, second)
	assert.Equal(t, first, order(1, 0))
	assert.NotEqual(t, first, order(2, 0))
}

func TestSweepValidate(t *testing.T) {
	checkOptions(t, SweepOptions{Rounds: 1}, map[string]func(*SweepOptions){
		"0 loops; give 1 to 1024":          func(o *SweepOptions) { o.Loops = []int{1, 0} },
		"60001 connections; give 1 to 60":  func(o *SweepOptions) { o.Connections = []int{60_001} },
		"0 rounds; give 1 to 100":          func(o *SweepOptions) { o.Rounds = 0 },
		"101 rounds; give 1 to 100":        func(o *SweepOptions) { o.Rounds = 101 },
		"a duration of -1ns":               func(o *SweepOptions) { o.Load.Duration = -1 },
		"a sweep over connections and loo": func(o *SweepOptions) { o.Load.Rates = []float64{5} },
		"1025 requests under way":          func(o *SweepOptions) { o.Load.Pipeline = 1025 },
		"-1 entries":                       func(o *SweepOptions) { o.Load.Entries = -1 },
	})
}

// point returns a point whose rounds had these rates.
func point(loops, connections int, rates ...float64) Point {
	p := Point{Loops: loops, Connections: connections}
	for _, rate := range rates {
		p.add(Report{Figures: &Figures{RequestsPerSecond: rate}}, 0)
	}
	p.summarize()
	return p
}

// A point counts by the median rate of its rounds and by all their lookups.
func TestPoint(t *testing.T) {
	latency := func(us ...int64) *hdrhistogram.Histogram {
		h := hdrhistogram.New(1, 1e9, 3)
		for _, v := range us {
			require.NoError(t, h.RecordValue(1000*v))
		}
		return h
	}
	first := latency(1, 1, 1)
	latencies := []*hdrhistogram.Histogram{first, latency(1, 1, 1, 1), latency(50, 50, 50)}
	got := Point{Loops: 2, Connections: 8}
	for i, rate := range []float64{30, 10, 20} {
		got.add(Report{Figures: &Figures{RequestsPerSecond: rate}, Requests: 5, Wrong: int64(i), Refused: 1, histogram: latencies[i]}, rate/100)
	}
	got.summarize()
	assert.Equal(t, []any{measure.Spread{Median: 20, Min: 10, Max: 30}, 0.2}, []any{got.RequestsPerSecond, got.ServerCPU})
	assert.Equal(t, []int64{15, 3, 3}, []int64{got.Requests, got.Wrong, got.Refused})
	assert.InDelta(t, 1, got.P50us, 0.01)
	assert.InDelta(t, 50, got.P99us, 0.1, "not the median of the rounds' percentiles, 1")
	assert.InDelta(t, 50, got.MaxUs, 0.1)
	assert.EqualValues(t, 3, first.TotalCount(), "a run's own histogram is read only")
}

// Speed-ups and slope are those of each round, of which the median counts.
func TestPeaksAndSlope(t *testing.T) {
	cores := slices.Collect(intsBelow(4))
	of := func(points ...Point) SweepReport {
		r := SweepReport{Placement: process.Placement{Server: cores}, Rounds: len(points[0].rates), Points: points}
		r.addPeaks()
		r.fit()
		return r
	}
	assert.Nil(t, of(point(1, 1, 10)).Slope, "there is no slope of one point")
	r := of(point(1, 1, 10, 10, 10), point(1, 2, 30, 60, 20), point(1, 3, 20, 20, 20), // a lucky round makes no peak
		point(2, 1, 54, 54, 54), point(2, 2, 53, 53, 53), point(4, 1, 102, 102, 102))
	for i, want := range []struct {
		loops, connections int
		rate, speedup      measure.Spread
	}{
		{1, 2, measure.Spread{Median: 30, Min: 20, Max: 60}, measure.Spread{Median: 1, Min: 1, Max: 1}},
		{2, 1, measure.Spread{Median: 54, Min: 54, Max: 54}, measure.Spread{Median: 1.8, Min: 0.9, Max: 2.7}},
		{4, 1, measure.Spread{Median: 102, Min: 102, Max: 102}, measure.Spread{Median: 3.4, Min: 1.7, Max: 5.1}},
	} {
		p := r.Peaks[i]
		assert.Equal(t, []any{want.loops, want.connections, want.rate, want.speedup}, []any{p.Loops, p.Connections, p.RequestsPerSecond, *p.Speedup})
	}
	assert.Contains(t, r.Peaks[2].describe(1), "3.40 times the first (1.70 to 5.10), efficiency 0.85")
	require.Len(t, r.Peaks, 3)
	require.NotNil(t, r.Slope)
	assert.Equal(t, measure.Spread{Median: 0.8, Min: 0.257, Max: 1.343}, *r.Slope)

	r = of(point(2, 1, 10), point(4, 1, 20)) // that begins with 2 loops; twice as many are twice as fast
	assert.InDelta(t, 1, r.Slope.Median, 0)
	assert.Contains(t, r.Peaks[1].describe(2), "efficiency 1.00")

	r = of(point(1, 1, 10), point(2, 1, 20), point(8, 1, 20)) // loops without a core each
	assert.InDelta(t, 1, r.Slope.Median, 0)
	assert.Contains(t, r.Peaks[2].describe(1), "efficiency 0.25")
	cores = slices.Collect(intsBelow(1))
	assert.Nil(t, of(point(1, 1, 10), point(2, 1, 10)).Slope)

	r = SweepReport{Placement: process.Placement{Shared: true, Server: slices.Collect(intsBelow(4))}, Rounds: 1, Points: []Point{point(1, 1, 10), point(2, 1, 20)}}
	r.addPeaks()
	r.fit()
	assert.Nil(t, r.Slope)
	assert.Nil(t, r.Peaks[1].Speedup)
}

// The keys are a contract with those who read the line.
func TestSweepReport(t *testing.T) {
	r := SweepReport{
		Asked:     Asked{Setup: measure.NewSetup(5), Workload: "random", Hashes: "64", HitShare: 1, MissAt: workload.MissRandom, Pipeline: 1},
		Placement: process.Placement{Client: []int{0, 1}, Server: []int{2, 3}}, Rounds: 3, Seconds: 1,
		Slope: &measure.Spread{Median: 0.81, Min: 0.7, Max: 0.9}, Wrong: 3,
		Points: []Point{{Loops: 1, Connections: 1, RequestsPerSecond: measure.Spread{Median: 10}}, {Loops: 1, Connections: 2, RequestsPerSecond: measure.Spread{Median: 30.4}}, {Loops: 2, Connections: 1, RequestsPerSecond: measure.Spread{Median: 12}}},
		Peaks: []Peak{{
			Point:   Point{Loops: 1, Connections: 2, RequestsPerSecond: measure.Spread{Median: 30.4, Min: 29, Max: 31}, ServerCPU: 0.97},
			Speedup: &measure.Spread{Median: 1, Min: 1, Max: 1},
		}},
	}
	var out bytes.Buffer
	require.NoError(t, measure.WriteJSON(&out, r))
	assert.Equal(t, 1, bytes.Count(out.Bytes(), []byte("\n")))
	var got struct {
		Points, Peaks []map[string]any
	}
	var keys map[string]any
	require.NoError(t, json.Unmarshal(out.Bytes(), &keys))
	require.NoError(t, json.Unmarshal(out.Bytes(), &got))
	assert.Equal(t, []string{
		"client_cores", "dialect", "entries", "hashes", "hit_share", "miss_at", "mode", "peaks", "pipeline", "points", "refused", "rounds", "seconds_per_point", "server_cores",
		"setup", "shared_cores", "slope", "workload", "wrong",
	}, slices.Sorted(maps.Keys(keys)))
	assert.Equal(t, []string{
		"connections", "loops", "max_us", "p50_us", "p99_us", "refused", "requests", "requests_per_s", "server_cpu", "wrong",
	}, slices.Sorted(maps.Keys(got.Points[0])))
	assert.Equal(t, []string{
		"connections", "loops", "max_us", "p50_us", "p99_us", "refused", "requests", "requests_per_s", "server_cpu", "speedup", "wrong",
	}, slices.Sorted(maps.Keys(got.Peaks[0])))

	out.Reset()
	require.NoError(t, r.WriteTable(&out))
	for _, line := range []string{
		"setup        hitbench ", ", --seed 5\n",
		"lookups      random, 64 hashes, 100 % hit whole, others miss at: random; 1 under way on a connection\n",
		"cores        client [0 1], server [2 3]\n",
		"rounds       3, of 1 s for each point; medians, with least and largest\n",
		"1 loop       30 a second (29 to 31) at 2 connections; 1.00 times the first (1.00 to 1.00), efficiency 1.00; the server kept 0.97 cores busy\n",
		"slope        0.810 a loop (0.700 to 0.900)\n",
		"wrong        3\n",
	} {
		assert.Contains(t, out.String(), line)
	}
	assert.Regexp(t, `\n *connections +1 loop +2 loops\n *1 +10 +12\n *2 +30 +-\n`, out.String())
	out.Reset()
	require.NoError(t, SweepReport{Placement: process.Placement{Shared: true, Server: []int{0}}}.WriteTable(&out))
	assert.Contains(t, out.String(), "cores        client and server share [0]\n")
	assert.Contains(t, out.String(), "slope        none: it takes two cores for the server, and one for the client\n")
}
