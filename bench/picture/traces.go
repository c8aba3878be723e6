package picture

import (
	"fmt"
	"path/filepath"
)

// traced is what reports on a trace say of it.
type traced struct {
	Trace    string `json:"trace"`
	Requests int    `json:"requests"`
}

// setup names the trace, and what more there is to say.
func (t traced) setup(more string) []string {
	return []string{filepath.Base(t.Trace), plural(t.Requests, "request"), more}
}

// capacityReport is what is used of a report of hitbench capacity.
type capacityReport struct {
	traced
	Blocks     float64 `json:"hashes"`
	BlockSize  int     `json:"block_size"`
	Capacities []struct {
		Capacity float64 `json:"capacity"`
		Hitline  float64 `json:"hitline"`
		LRU      float64 `json:"lru"`
		TailLRU  float64 `json:"tail_lru"`
		Belady   float64 `json:"belady"`
	} `json:"capacities"`
}

// capacity draws the share of a trace's blocks that hit under rising bounds.
var capacity = kindOf("Hit ratio by capacity", []panel{
	over(axis{"capacity (blocks)", log}, axis{"blocks that hit (%)", linear}),
}, func(s Source, r capacityReport, _ Options) (content, error) {
	if len(r.Capacities) == 0 || r.Blocks <= 0 {
		return content{}, lacks(s, "capacities", "hitbench capacity --json")
	}
	curves := []curve{{name: "hitline"}, {name: "LRU, tail first"}, {name: "LRU"}, {name: "the best possible, which knows the future", role: bound}}
	for _, row := range r.Capacities {
		for i, hits := range []float64{row.Hitline, row.TailLRU, row.LRU, row.Belady} {
			curves[i].points = append(curves[i].points, point{x: row.Capacity, y: 100 * hits / r.Blocks})
		}
	}
	return content{curves: [][]curve{curves}, setup: r.setup(fmt.Sprintf("%.0f blocks of %d tokens", r.Blocks, r.BlockSize))}, nil
})

// replayReport is what is used of a report of hitbench replay.
type replayReport struct {
	traced
	Speed   float64 `json:"speed"` // times as fast as recorded; 0 flat out
	Windows []struct {
		Start    float64 `json:"start_s"`
		Requests int     `json:"requests"`
		HitRatio float64 `json:"hit_ratio"` // 0 to 1
		P50      float64 `json:"p50_us"`
		P99      float64 `json:"p99_us"`
	} `json:"windows"`
}

// replay draws the hit ratio and the latency over the time of a replay. Windows
// without requests are left out.
var replay = kindOf("A trace over time", []panel{
	over(axis{"time", seconds}, axis{"blocks that hit (%)", hundred}),
	over(axis{"time", seconds}, axis{"latency (µs)", log}),
}, func(s Source, r replayReport, _ Options) (content, error) {
	hit, p50, p99 := curve{name: "hit ratio"}, curve{name: "p50"}, curve{name: "p99"}
	for _, w := range r.Windows {
		if w.Requests > 0 {
			hit.points = append(hit.points, point{x: w.Start, y: 100 * w.HitRatio})
			p50.points = append(p50.points, point{x: w.Start, y: w.P50})
			p99.points = append(p99.points, point{x: w.Start, y: w.P99})
		}
	}
	if len(hit.points) == 0 {
		return content{}, lacks(s, "windows with requests", "hitbench replay --json")
	}
	return content{curves: [][]curve{{hit}, {p50, p99}}, setup: r.setup(pace(r.Speed))}, nil
})

// pace says how fast a trace was replayed.
func pace(speed float64) string {
	switch speed {
	case 0:
		return "one after the other, flat out"
	case 1:
		return "as fast as recorded"
	}
	return fmt.Sprintf("%g times as fast as recorded", speed)
}
