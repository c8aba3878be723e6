package scale

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/fstest"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/bench/load"
	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/process"
)

func upTo(n int) []int {
	var numbers []int
	for i := range n {
		numbers = append(numbers, i)
	}
	return numbers
}

func TestPlan(t *testing.T) {
	mean := func(connections []int) time.Duration { // what a run takes beside its duration
		whole := time.Duration(0)
		for _, n := range connections {
			whole += warmupFor(n) + overhead
		}
		return whole / time.Duration(len(connections))
	}
	all, some := powers(2, 4096), powers(4, 4096)
	for name, tt := range map[string]struct {
		cores, most        int
		o                  Options
		client, server     int // cores
		loops, connections []int
		each               time.Duration
		notes              string
	}{
		"one core":      {1, 5000, Options{}, 1, 1, []int{1}, all, budget/39 - mean(all), "client and server share the cores"},
		"none known":    {0, 5000, Options{}, 0, 0, []int{1}, all, budget/39 - mean(all), "share the cores"},
		"two cores":     {2, 5000, Options{}, 1, 1, []int{1}, all, budget/39 - mean(all), ""},
		"three cores":   {3, 5000, Options{}, 1, 2, []int{1, 2}, all, budget/78 - mean(all), ""},
		"four cores":    {4, 5000, Options{}, 2, 2, []int{1, 2}, all, budget/78 - mean(all), ""},
		"one round":     {13, 5000, Options{Rounds: 1}, 6, 7, []int{1, 2, 4, 7}, all, budget/52 - mean(all), ""},
		"thirteen":      {13, 5000, Options{}, 6, 7, []int{1, 2, 4, 7}, some, budget/84 - mean(some), ""},
		"many cores":    {256, 5000, Options{}, 128, 128, powers(2, 128), some, leastDuration, ""},
		"few files":     {4, 896, Options{}, 2, 2, []int{1, 2}, powers(2, 512), budget/60 - mean(powers(2, 512)), "the limit of open files allows 896 connections"},
		"given":         {4, 896, Options{Loops: []int{2, 1, 2}, Connections: []int{50, 5}, Duration: 3}, 2, 2, []int{1, 2}, []int{5, 50}, 3, "the limit of open files"},
		"more loops":    {4, 5000, Options{Loops: []int{3}}, 2, 2, []int{3}, all, budget/39 - mean(all), "3 loops have only 2 cores: the slope leaves them out"},
		"two on one":    {2, 5000, Options{Loops: []int{2}}, 1, 1, []int{2}, all, budget/39 - mean(all), "2 loops have only 1 core:"},
		"too few files": {4, 100, Options{Connections: []int{200}}, 2, 2, []int{1, 2}, []int{200}, time.Second, "200 connections may be more than the limit of open files allows, which is 100"},
	} {
		t.Run(name, func(t *testing.T) {
			tt.o.Rounds = cmp.Or(tt.o.Rounds, 3)
			p := tt.o.planFor(process.Halves(upTo(tt.cores), fstest.MapFS{}), tt.most)
			assert.Equal(t, []int{tt.client, tt.server}, []int{len(p.Client), len(p.Server)})
			assert.Equal(t, tt.loops, p.loops)
			assert.Equal(t, tt.connections, p.connections)
			assert.InDelta(t, tt.each, p.each, float64(time.Microsecond))
			notes := p.notes(tt.most)
			if tt.notes == "" {
				assert.Empty(t, notes)
			} else {
				assert.Contains(t, fmt.Sprint(notes), tt.notes)
			}
			if tt.o.Duration == 0 {
				assert.LessOrEqual(t, time.Duration(p.runs())*(p.each+mean(p.connections)), 75*time.Second)
			}
		})
	}
}

// The client has as many threads as cores: half of the machine, and not half of that.
// Every run begins with an empty index and sends the requests of the seed.
func TestLoadOptions(t *testing.T) {
	o := Options{Rounds: 1, Hashes: 64, Pipeline: 2, Entries: 10, Timeout: time.Second, Seed: 7}
	p := o.planFor(process.Halves(upTo(16), fstest.MapFS{}), 5000)
	got := p.load(o, "tcp://h:1", 64)
	assert.Equal(t, 8, got.Threads)
	assert.Equal(t, p.each, got.Duration)
	assert.EqualValues(t, 7, got.Seed)
	assert.True(t, got.Reset)
	require.NoError(t, got.Validate())

	p = o.planFor(process.Halves(upTo(1), fstest.MapFS{}), 5000)
	assert.Zero(t, p.load(o, "tcp://h:1", 64).Threads, "as load has it by default")
}

// Each round has all points, in an order of its own that the seed decides.
func TestOrder(t *testing.T) {
	p := plan{loops: []int{1, 2, 4}, connections: powers(2, 64), rounds: 3}
	first, second := p.order(1, 0), p.order(1, 1)
	assert.ElementsMatch(t, p.keys(), first)
	assert.ElementsMatch(t, p.keys(), second)
	assert.NotEqual(t, p.keys(), first)
	assert.NotEqual(t, first, second)
	assert.Equal(t, first, p.order(1, 0))
	assert.NotEqual(t, first, p.order(2, 0))
}

func TestValidate(t *testing.T) {
	good := Options{Rounds: 1, Hashes: 64, Pipeline: 1, Entries: 1, Timeout: time.Second}
	require.NoError(t, good.Validate())
	for want, spoil := range map[string]func(*Options){
		"0 loops; give 1 to 1024":         func(o *Options) { o.Loops = []int{1, 0} },
		"60001 connections; give 1 to 60": func(o *Options) { o.Connections = []int{60_001} },
		"0 rounds; give 1 to 100":         func(o *Options) { o.Rounds = 0 },
		"101 rounds; give 1 to 100":       func(o *Options) { o.Rounds = 101 },
		"a duration of -1ns":              func(o *Options) { o.Duration = -1 },
		"a timeout of 0s":                 func(o *Options) { o.Timeout = 0 },
		"1025 requests under way":         func(o *Options) { o.Pipeline = 1025 },
		"-1 entries":                      func(o *Options) { o.Entries = -1 },
		"-1 to -1 hashes":                 func(o *Options) { o.Hashes = -1 },
	} {
		o := good
		spoil(&o)
		err := o.Validate()
		require.ErrorIs(t, err, measure.ErrOptions)
		assert.ErrorContains(t, err, want)
	}
}

// point returns a point whose rounds had these rates.
func point(loops, connections int, rates ...float64) Point {
	t := tally{point: Point{Loops: loops, Connections: connections}}
	for _, rate := range rates {
		t.add(load.Report{Figures: &load.Figures{RequestsPerSecond: rate}}, 0)
	}
	return t.summarize()
}

// A point counts by the median rate of its rounds and by all their lookups.
func TestTally(t *testing.T) {
	latency := func(us ...int64) *hdrhistogram.Histogram {
		h := hdrhistogram.New(1, 1e9, 3)
		for _, v := range us {
			require.NoError(t, h.RecordValue(1000*v))
		}
		return h
	}
	tally := tally{point: Point{Loops: 2, Connections: 8}}
	for i, rate := range []float64{30, 10, 20} {
		tally.add(load.Report{Figures: &load.Figures{RequestsPerSecond: rate}, Requests: 5, Wrong: int64(i), Refused: 1}, rate/100)
	}
	first := latency(1, 1, 1)
	tally.pool(first)
	tally.pool(latency(1, 1, 1, 1))
	tally.pool(latency(50, 50, 50))
	tally.pool(nil)
	got := tally.summarize()
	assert.Equal(t, []float64{20, 10, 30, 0.2}, []float64{got.RequestsPerSecond, got.RequestsPerSecondMin, got.RequestsPerSecondMax, got.ServerCPU})
	assert.Equal(t, []int64{15, 3, 3}, []int64{got.Requests, got.Wrong, got.Errors})
	assert.InDelta(t, 1, got.P50us, 0.01)
	assert.InDelta(t, 50, got.P99us, 0.1, "not the median of the rounds' percentiles, 1")
	assert.InDelta(t, 50, got.Maxus, 0.1)
	assert.EqualValues(t, 3, first.TotalCount(), "a run's own histogram is read only")
}

// Speed-ups and slope are those of each round, of which the median counts.
func TestPeaksAndSlope(t *testing.T) {
	cores := upTo(4)
	of := func(points ...Point) Report {
		r := Report{Server: cores, Rounds: len(points[0].rates), Points: points}
		r.addPeaks()
		r.fit()
		for i := range r.Peaks {
			r.Peaks[i].speedups = nil
		}
		return r
	}
	assert.Nil(t, of(point(1, 1, 10)).Slope, "there is no slope of one point")
	r := of(point(1, 1, 10, 10, 10), point(1, 2, 30, 60, 20), point(1, 3, 20, 20, 20), // a lucky round makes no peak
		point(2, 1, 54, 54, 54), point(2, 2, 53, 53, 53), point(4, 1, 102, 102, 102))
	assert.Equal(t, []Peak{
		{Loops: 1, Connections: 2, RequestsPerSecond: 30, RequestsPerSecondMin: 20, RequestsPerSecondMax: 60, Speedup: 1, SpeedupMin: 1, SpeedupMax: 1, Efficiency: 1},
		{Loops: 2, Connections: 1, RequestsPerSecond: 54, RequestsPerSecondMin: 54, RequestsPerSecondMax: 54, Speedup: 1.8, SpeedupMin: 0.9, SpeedupMax: 2.7, Efficiency: 0.9},
		{Loops: 4, Connections: 1, RequestsPerSecond: 102, RequestsPerSecondMin: 102, RequestsPerSecondMax: 102, Speedup: 3.4, SpeedupMin: 1.7, SpeedupMax: 5.1, Efficiency: 0.85},
	}, r.Peaks)
	require.NotNil(t, r.Slope)
	assert.Equal(t, []float64{0.8, 0.257, 1.343}, []float64{*r.Slope, *r.SlopeMin, *r.SlopeMax})

	r = of(point(2, 1, 10), point(4, 1, 20)) // that begins with 2 loops; twice as many are twice as fast
	assert.InDelta(t, 1, *r.Slope, 0)
	assert.InDelta(t, 1, r.Peaks[1].Efficiency, 0)

	r = of(point(1, 1, 10), point(2, 1, 20), point(8, 1, 20)) // loops without a core each
	assert.InDelta(t, 1, *r.Slope, 0)
	assert.InDelta(t, 0.25, r.Peaks[2].Efficiency, 0)
	cores = upTo(1)
	assert.Nil(t, of(point(1, 1, 10), point(2, 1, 10)).Slope)

	r = Report{Shared: true, Server: upTo(4), Rounds: 1, Points: []Point{point(1, 1, 10), point(2, 1, 20)}}
	r.addPeaks()
	r.fit()
	assert.Nil(t, r.Slope)
	assert.Zero(t, r.Peaks[1].Efficiency)
}

// The keys are a contract with those who read the line.
func TestReport(t *testing.T) {
	slope, least, most := 0.81, 0.7, 0.9
	r := Report{
		Setup:  measure.NewSetup(5),
		Hashes: 64, Pipeline: 1, Client: []int{0, 1}, Server: []int{2, 3}, Rounds: 3, Seconds: 1, Slope: &slope, SlopeMin: &least, SlopeMax: &most, Wrong: 3,
		Points: []Point{{Loops: 1, Connections: 1, RequestsPerSecond: 10}, {Loops: 1, Connections: 2, RequestsPerSecond: 30.4}, {Loops: 2, Connections: 1, RequestsPerSecond: 12}},
		Peaks: []Peak{{
			Loops: 1, Connections: 2, RequestsPerSecond: 30.4, RequestsPerSecondMin: 29, RequestsPerSecondMax: 31,
			Speedup: 1, SpeedupMin: 1, SpeedupMax: 1, Efficiency: 1, ServerCPU: 0.97,
		}},
	}
	var out bytes.Buffer
	require.NoError(t, r.WriteJSON(&out))
	assert.Equal(t, 1, bytes.Count(out.Bytes(), []byte("\n")))
	var got struct {
		Points, Peaks []map[string]any
	}
	var keys map[string]any
	require.NoError(t, json.Unmarshal(out.Bytes(), &keys))
	require.NoError(t, json.Unmarshal(out.Bytes(), &got))
	assert.Equal(t, []string{
		"client_cores", "dialect", "entries", "errors", "hashes", "mode", "peaks", "pipeline", "points", "rounds", "seconds_per_point", "server_cores",
		"setup", "shared_cores", "slope", "slope_max", "slope_min", "wrong",
	}, slices.Sorted(maps.Keys(keys)))
	assert.Equal(t, []string{
		"connections", "errors", "loops", "max_us", "p50_us", "p99_us", "requests", "requests_per_s", "requests_per_s_max", "requests_per_s_min", "server_cpu", "wrong",
	}, slices.Sorted(maps.Keys(got.Points[0])))
	assert.Equal(t, []string{
		"connections", "efficiency", "loops", "requests_per_s", "requests_per_s_max", "requests_per_s_min", "server_cpu", "speedup", "speedup_max", "speedup_min",
	}, slices.Sorted(maps.Keys(got.Peaks[0])))

	out.Reset()
	require.NoError(t, r.WriteTable(&out))
	for _, line := range []string{
		"setup        hitbench ", ", --seed 5\n",
		"lookups      64 hashes, all hit; 1 under way on a connection\n",
		"cores        client [0 1], server [2 3]\n",
		"rounds       3, of 1 s for each point; medians, with least and largest\n",
		"connections       1 loop     2 loops\n1                     10          12\n2                     30           -\n",
		"1 loop       30 a second (29 to 31) at 2 connections; 1.00 times the first (1.00 to 1.00), efficiency 1.00; the server kept 0.97 cores busy\n",
		"slope        0.810 a loop (0.700 to 0.900)\n",
		"wrong        3\n",
	} {
		assert.Contains(t, out.String(), line)
	}
	out.Reset()
	require.NoError(t, Report{Shared: true, Server: []int{0}}.WriteTable(&out))
	assert.Contains(t, out.String(), "cores        client and server share [0]\n")
	assert.Contains(t, out.String(), "slope        none: it takes two cores for the server, and one for the client\n")
}
