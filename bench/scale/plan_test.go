package scale

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/bench"
)

func upTo(n int) []int {
	var numbers []int
	for i := range n {
		numbers = append(numbers, i)
	}
	return numbers
}

func TestPlan(t *testing.T) {
	const warm = warmup + 8191*warmupEach/13 // the mean over 1, 2, 4, … 4096 connections
	for name, tt := range map[string]struct {
		cores, most        int
		o                  Options
		shared             bool
		loops, connections []int
		server             int // cores
		each               time.Duration
		notes              string
	}{
		"two cores":     {2, 5000, Options{}, true, []int{1, 2}, doubling(4096), 2, time.Second, "client and server share the cores, of which there are 2"},
		"none known":    {0, 5000, Options{}, true, []int{1}, doubling(4096), 0, time.Second, "share the cores"},
		"three cores":   {3, 5000, Options{}, true, []int{1, 2, 3}, doubling(4096), 3, budget/39 - warm - overhead, "share the cores"},
		"four cores":    {4, 5000, Options{}, false, []int{1, 2}, doubling(4096), 2, time.Second, ""},
		"thirteen":      {13, 5000, Options{}, false, []int{1, 2, 4, 7}, doubling(4096), 7, budget/52 - warm - overhead, ""},
		"many cores":    {256, 5000, Options{}, false, []int{1, 2, 4, 8, 16, 32, 64, 128}, doubling(4096), 128, 200 * time.Millisecond, ""},
		"few files":     {4, 896, Options{}, false, []int{1, 2}, doubling(512), 2, time.Second, "the limit of open files allows 896 connections"},
		"given":         {4, 896, Options{Loops: []int{2, 1, 2}, Connections: []int{50, 5}, Duration: 3}, false, []int{1, 2}, []int{5, 50}, 2, 3, "the limit of open files"},
		"more loops":    {4, 5000, Options{Loops: []int{3}}, false, []int{3}, doubling(4096), 2, time.Second, "3 loops have only 2 cores"},
		"too few files": {4, 100, Options{Connections: []int{200}}, false, []int{1, 2}, []int{200}, 2, time.Second, "200 connections may be more than the limit of open files allows, which is 100"},
	} {
		t.Run(name, func(t *testing.T) {
			cores := upTo(tt.cores)
			p := tt.o.planFor(cores, tt.most)
			assert.Equal(t, tt.shared, p.shared)
			assert.Equal(t, tt.loops, p.loops)
			assert.Equal(t, tt.connections, p.connections)
			assert.InDelta(t, tt.each, p.each, float64(time.Microsecond))
			assert.Len(t, p.server, tt.server)
			if !tt.shared {
				assert.Equal(t, cores, append(slices.Clone(p.client), p.server...), "every core has a side")
			}
			notes := p.notes(tt.most)
			if tt.notes == "" {
				assert.Empty(t, notes)
			} else {
				assert.Contains(t, fmt.Sprint(notes), tt.notes)
			}
			if tt.o.Duration == 0 {
				whole := time.Duration(0)
				for _, n := range p.connections {
					whole += time.Duration(len(p.loops)) * (p.each + warmupFor(n) + overhead)
				}
				assert.LessOrEqual(t, whole, 55*time.Second)
			}
		})
	}
}

// Threads of one core may be numbered next to each other, or a half apart.
func TestSplit(t *testing.T) {
	cpus := fstest.MapFS{}
	for core, siblings := range map[int]string{0: "0,4\n", 1: "1,5\n", 2: "2,6\n", 3: "3,7\n", 4: "0,4\n", 5: "1,5\n", 6: "2,6\n", 7: "3,7\n", 8: "8-9\n", 9: "8-9\n", 10: "?"} {
		cpus[fmt.Sprintf("cpu%d/topology/thread_siblings_list", core)] = &fstest.MapFile{Data: []byte(siblings)}
	}
	assert.Equal(t, []int{0, 4, 1, 5, 2, 6, 3, 7}, split(upTo(8), cpus))
	assert.Equal(t, []int{4, 5, 8, 9, 10, 11}, split([]int{8, 4, 11, 9, 5, 10}, cpus))
}

func TestValidate(t *testing.T) {
	good := Options{Hashes: 64, Pipeline: 1, Entries: 1, Timeout: time.Second}
	require.NoError(t, good.Validate())
	for want, spoil := range map[string]func(*Options){
		"0 loops; give 1 to 1024":         func(o *Options) { o.Loops = []int{1, 0} },
		"60001 connections; give 1 to 60": func(o *Options) { o.Connections = []int{60_001} },
		"a duration of -1ns":              func(o *Options) { o.Duration = -1 },
		"a timeout of 0s":                 func(o *Options) { o.Timeout = 0 },
		"1025 requests under way":         func(o *Options) { o.Pipeline = 1025 },
		"-1 entries":                      func(o *Options) { o.Entries = -1 },
		"-1 to -1 hashes":                 func(o *Options) { o.Hashes = -1 },
	} {
		o := good
		spoil(&o)
		err := o.Validate()
		require.ErrorIs(t, err, bench.ErrOptions)
		assert.ErrorContains(t, err, want)
	}
}

func TestPeaksAndSlope(t *testing.T) {
	points := func(loops int, perSecond ...float64) []Point {
		var list []Point
		for i, v := range perSecond {
			list = append(list, Point{Loops: loops, Connections: i + 1, RequestsPerSecond: v})
		}
		return list
	}
	var r Report
	r.peak(points(1, 10, 30, 20))
	r.fit()
	assert.Nil(t, r.Slope, "there is no slope of one point")
	r.peak(points(2, 54, 53))
	r.peak(points(4, 102))
	r.fit()
	assert.Equal(t, []Peak{
		{Loops: 1, Connections: 2, RequestsPerSecond: 30, Speedup: 1, Efficiency: 1},
		{Loops: 2, Connections: 1, RequestsPerSecond: 54, Speedup: 1.8, Efficiency: 0.9},
		{Loops: 4, Connections: 1, RequestsPerSecond: 102, Speedup: 3.4, Efficiency: 0.85},
	}, r.Peaks)
	require.NotNil(t, r.Slope)
	assert.InDelta(t, 0.8, *r.Slope, 0)

	r = Report{} // that begins with 2 loops; twice as many are twice as fast
	r.peak(points(2, 10))
	r.peak(points(4, 20))
	r.fit()
	assert.InDelta(t, 1, *r.Slope, 0)
	assert.InDelta(t, 1, r.Peaks[1].Efficiency, 0)

	r = Report{Shared: true}
	r.peak(points(1, 10))
	r.peak(points(2, 20))
	r.fit()
	assert.Nil(t, r.Slope)
	assert.Zero(t, r.Peaks[1].Efficiency)
}

// The keys are a contract with those who read the line.
func TestReport(t *testing.T) {
	slope := 0.81
	r := Report{
		Hashes: 64, Pipeline: 1, Client: []int{0, 1}, Server: []int{2, 3}, Seconds: 1, Slope: &slope, Wrong: 3,
		Points: []Point{{Loops: 1, Connections: 1, RequestsPerSecond: 10}, {Loops: 1, Connections: 2, RequestsPerSecond: 30.4}, {Loops: 2, Connections: 1, RequestsPerSecond: 12}},
		Peaks:  []Peak{{Loops: 1, Connections: 2, RequestsPerSecond: 30.4, Speedup: 1, Efficiency: 1, ServerCPU: 0.97}},
	}
	var out bytes.Buffer
	require.NoError(t, r.WriteJSON(&out))
	assert.Equal(t, 1, bytes.Count(out.Bytes(), []byte("\n")))
	var keys map[string]any
	require.NoError(t, json.Unmarshal(out.Bytes(), &keys))
	assert.Equal(t, []string{
		"client_cores", "dialect", "entries", "errors", "hashes", "mode", "peaks", "pipeline", "points", "seconds_per_point", "server_cores",
		"shared_cores", "slope", "wrong",
	}, slices.Sorted(maps.Keys(keys)))

	out.Reset()
	require.NoError(t, r.WriteTable(&out))
	for _, line := range []string{
		"lookups      64 hashes, all hit; 1 under way on a connection\n",
		"cores        client [0 1], server [2 3]\n",
		"connections       1 loop     2 loops\n1                     10          12\n2                     30           -\n",
		"1 loop       30 a second at 2 connections; 1.00 times the first, efficiency 1.00; the server kept 0.97 cores busy\n",
		"slope        0.810 a loop\n",
		"wrong        3\n",
	} {
		assert.Contains(t, out.String(), line)
	}
	out.Reset()
	require.NoError(t, Report{Shared: true, Server: []int{0, 1}}.WriteTable(&out))
	assert.Contains(t, out.String(), "cores        client and server share [0 1]\n")
	assert.Contains(t, out.String(), "slope        none: client and server share the cores, so that what loops add means nothing\n")
}
