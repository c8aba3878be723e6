package picture

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/hitline/hitline/bench/measure"
)

// kinds has what can be drawn, by name.
var kinds = map[string]kind{
	"latency": {"Lookup latency", []panel{
		{x: axis{"percentile of lookups (%)", percentile}, y: axis{"latency (µs)", log}},
	}, latency},
	"knee": {"Latency at rising load", []panel{
		{x: axis{"achieved (lookups/s)", log}, y: axis{"latency (µs)", log}},
	}, knee},
	"cost": {"Round trip by number of hashes", []panel{
		{x: axis{"hashes a lookup", log}, y: axis{"round trip (µs)", log}},
	}, cost},
	"capacity": {"Hit ratio by capacity", []panel{
		{x: axis{"capacity (blocks)", log}, y: axis{"blocks that hit (%)", linear}},
	}, capacity},
	"replay": {"A trace over time", []panel{
		{x: axis{"time", seconds}, y: axis{"blocks that hit (%)", hundred}},
		{x: axis{"time", seconds}, y: axis{"latency (µs)", log}},
	}, replay},
	"scale": {"Throughput by connections and event loops", []panel{
		{x: axis{"connections", log}, y: axis{"throughput (lookups/s)", linear}},
	}, scaling},
}

// latency draws percentiles of how long lookups took.
func latency(s Source, r report) (content, error) {
	if r.P50 == 0 {
		return content{}, lacks(s, "p50_us", "hitbench run --json")
	}
	c := curve{points: []point{{x: 0.5, y: r.P50}}}
	for _, p := range []point{{x: 0.9, y: r.P90}, {x: 0.99, y: r.P99}, {x: 0.999, y: r.P999}, {x: 1 - 1/float64(max(r.Requests, 1)), y: r.Max}} {
		if p.y != 0 && p.x > c.points[len(c.points)-1].x {
			c.points = append(c.points, p)
		}
	}
	return content{curves: [][]curve{{c}}, setup: r.load(), note: "the last point is the slowest lookup"}, nil
}

// fallenShort is the share of the offered rate below which a step has a ring.
const fallenShort = 0.98

// knee draws latency over throughput at rising load. Where less was achieved than offered the
// points have rings.
func knee(s Source, r report) (content, error) {
	if len(r.Steps) < 2 || r.Steps[0].Rate == 0 {
		return content{}, lacks(s, "steps of several rates", "hitbench run --rate R1,R2,… --json")
	}
	p50, p99, short := curve{name: "p50"}, curve{name: "p99"}, curve{name: "short", role: rings}
	for _, step := range r.Steps {
		low, high := point{x: step.Done, y: step.P50}, point{x: step.Done, y: step.P99}
		p50.points, p99.points = append(p50.points, low), append(p99.points, high)
		if step.Done < fallenShort*step.Rate {
			short.points = append(short.points, low, high)
		}
	}
	c := content{curves: [][]curve{{p50, p99}}, setup: r.load()}
	if len(short.points) > 0 {
		c.curves[0] = append(c.curves[0], short)
		c.note = fmt.Sprintf("ringed: under %.0f %% of the rate", 100*fallenShort)
	}
	return c, nil
}

// scaling draws throughput over connections, a curve for each number of loops.
func scaling(s Source, r report) (content, error) {
	if len(r.Points) == 0 {
		return content{}, lacks(s, "points", "hitbench run --sweep --json")
	}
	var p panel
	for _, at := range r.Points {
		if at.Loops < 1 || at.PerSecond.Median <= 0 {
			return content{}, fmt.Errorf("%w: %s has a point without loops or requests_per_s", ErrInput, s.Name)
		}
		p.add(curve{name: plural(at.Loops, "loop"), points: []point{withBar(at.Connections, at.PerSecond.Median, at.PerSecond)}}, true)
	}
	r.Connections = 0 // they are on an axis
	return content{curves: [][]curve{p.curves}, setup: r.load()}, nil
}

// withBar returns a point with a bar from the least to the largest of the rounds, if these
// differ.
func withBar(x, y float64, rounds measure.Spread) point {
	if rounds.Min >= rounds.Max {
		return point{x: x, y: y}
	}
	return point{x, y, min(rounds.Min, y), max(rounds.Max, y)}
}

// rawSocket is the rival that only reads the bytes and answers.
const rawSocket = "floor"

// cost draws the round trip over the number of hashes, above that of a raw socket, of what was
// asked by bytes made before. The first source that has a rival at a
// number of hashes counts, so that what was measured side by side stays together.
func cost(s Source, r report) (content, error) {
	var p panel
	add := func(name string, role role, hashes int, t trips) {
		p.add(curve{name, []point{withBar(float64(hashes), t.P50, t.Rounds)}, role}, true)
	}
	for _, row := range r.Rows {
		switch {
		case row.Rival == "" || row.Hashes < 1 || row.P50 <= 0:
			return content{}, fmt.Errorf("%w: %s: a row without rival, hashes or p50_us", ErrInput, s.Name)
		case row.Way != "prepared":
		case row.Rival == rawSocket:
			add("raw socket, no lookup", bound, row.Hashes, row.trips)
		case strings.Contains(row.Note, "miss only"): // it was spared what the others do
			add(row.Rival+" (misses only)", measured, row.Hashes, row.trips)
		default:
			add(row.Rival, measured, row.Hashes, row.trips)
		}
	}
	if len(p.curves) == 0 {
		return content{}, lacks(s, "rows of the way prepared", "hitbench compare --json or hitbench floor --json")
	}
	return content{curves: [][]curve{p.curves}, setup: []string{"median; one connection, one request at a time"}, join: true}, nil
}

// capacity draws the share of a trace's blocks that hit under rising bounds.
func capacity(s Source, r report) (content, error) {
	blocks, _ := strconv.ParseFloat(string(r.Hashes), 64) // 0 of what is no number
	if len(r.Capacities) == 0 || blocks <= 0 {
		return content{}, lacks(s, "capacities", "hitbench capacity --json")
	}
	curves := []curve{{name: "hitline"}, {name: "LRU, tail first"}, {name: "LRU"}, {name: "the best possible, which knows the future", role: bound}}
	for _, row := range r.Capacities {
		for i, hits := range []float64{row.Hitline, row.TailLRU, row.LRU, row.Belady} {
			curves[i].points = append(curves[i].points, point{x: row.Capacity, y: 100 * hits / blocks})
		}
	}
	return content{curves: [][]curve{curves}, setup: r.traced(fmt.Sprintf("%.0f blocks of %d tokens", blocks, r.BlockSize))}, nil
}

// replay draws the hit ratio and the latency over the time of a replay. Windows
// without requests are left out.
func replay(s Source, r report) (content, error) {
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
	return content{curves: [][]curve{{hit}, {p50, p99}}, setup: r.traced(pace(r.Speed))}, nil
}

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
