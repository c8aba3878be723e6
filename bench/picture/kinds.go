package picture

import (
	"fmt"
	"slices"

	"github.com/hitline/hitline/bench/measure"
)

// kinds has what can be drawn, by name.
var kinds = map[string]kind{
	"latency": {"Lookup latency", []panel{
		{x: axis{"percentile of lookups (%)", percentile}, y: axis{"latency (µs)", log}},
	}, latency},
	"cost": {"Round trip by number of hashes", []panel{
		{x: axis{"hashes a lookup", log}, y: axis{"round trip (µs)", log}},
	}, cost},
	"streams": {"Time between the tokens of running streams", []panel{
		{x: axis{"percentile of tokens (%)", percentile}, y: axis{"inter-token latency (ms)", log}},
	}, streams},
	"replay": {"A trace over time", []panel{
		{x: axis{"time", seconds}, y: axis{"blocks that hit (%)", hundred}},
		{x: axis{"time", seconds}, y: axis{"latency (µs)", log}},
	}, replay},
}

// latency draws percentiles of how long lookups took.
func latency(s Source, r report) (content, error) {
	if r.P50 == 0 {
		return content{}, lacks(s, "p50_us", "hitbench run --json")
	}
	c := byPercentile(r.Requests, r.P50, r.P90, r.P99, r.P999, r.Max)
	return content{curves: [][]curve{{c}}, setup: r.load(), note: "the last point is the slowest lookup"}, nil
}

// byPercentile returns the curve of n values from their median to the largest. Those that are 0 are not known.
func byPercentile(n int, p50, p90, p99, p999, largest float64) curve {
	c := curve{points: []point{{x: 0.5, y: p50}}}
	last := 1 - 1/float64(max(n, 1))
	for _, p := range []point{{x: 0.9, y: p90}, {x: 0.99, y: p99}, {x: 0.999, y: p999}, {x: last, y: largest}} {
		if p.y != 0 && p.x > c.points[len(c.points)-1].x {
			c.points = append(c.points, p)
		}
	}
	return c
}

// streams draws percentiles of how long the streams of an engine waited for a token while prompts arrived.
func streams(s Source, r report) (content, error) {
	var curves []curve
	for _, row := range r.Rows {
		if row.Measured != "arrivals" {
			continue
		}
		c := byPercentile(row.Tokens, row.P50ms, row.P90ms, row.P99ms, row.P999ms, row.Maxms)
		c.name = row.Mode
		curves = append(curves, c)
	}
	if len(curves) == 0 {
		return content{}, lacks(s, "rows of arrivals", "scripts/e2e --only '*/latency' --json FILE")
	}
	return content{curves: [][]curve{curves}, setup: []string{"the last point is the longest"}}, nil
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
const rawSocket = "raw"

// cost draws the round trip over the number of hashes, above that of a raw socket.
func cost(s Source, r report) (content, error) {
	var curves []curve
	for _, row := range r.Rows {
		if row.Rival == "" || row.Hashes < 1 || row.P50 <= 0 {
			return content{}, fmt.Errorf("%w: %s: a row without rival, hashes or p50_us", ErrInput, s.Name)
		}
		c := curve{name: row.Rival}
		if row.Rival == rawSocket {
			c = curve{name: "raw socket, no lookup", role: bound}
		}
		i := slices.IndexFunc(curves, func(known curve) bool { return known.name == c.name })
		if i < 0 {
			i = len(curves)
			curves = append(curves, c)
		}
		curves[i].points = append(curves[i].points, withBar(float64(row.Hashes), row.P50, row.Rounds))
	}
	if len(curves) == 0 {
		return content{}, lacks(s, "rows", "hitbench compare --json")
	}
	return content{curves: [][]curve{curves}, setup: []string{"median; one connection, one request at a time"}}, nil
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
	return content{curves: [][]curve{{hit}, {p50, p99}}, setup: r.traced()}, nil
}
