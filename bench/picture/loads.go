package picture

import (
	"fmt"

	"github.com/hitline/hitline/bench/measure"
)

// runReport is what is used of a report of hitbench run, or of compare.
type runReport struct {
	load
	comparison
	Requests int     `json:"requests"`
	P50      float64 `json:"p50_us"`
	P90      float64 `json:"p90_us"`
	P99      float64 `json:"p99_us"`
	P999     float64 `json:"p999_us"`
	Max      float64 `json:"max_us"`
}

// latency draws percentiles of how long lookups took.
var latency = kindOf("Lookup latency", []panel{
	over(axis{"percentile of lookups (%)", percentile}, axis{"latency (µs)", log}),
}, func(s Source, r runReport, o Options) (content, error) {
	if len(r.Rows) > 0 {
		return r.percentiles(s, o.Hashes)
	}
	if r.P50 == 0 {
		return content{}, lacks(s, "p50_us", "hitbench run --json or hitbench compare --json")
	}
	c := curve{points: []point{{x: 0.5, y: r.P50}}}
	for _, p := range []point{{x: 0.9, y: r.P90}, {x: 0.99, y: r.P99}, {x: 0.999, y: r.P999}, {x: 1 - 1/float64(max(r.Requests, 1)), y: r.Max}} {
		if p.y != 0 && p.x > c.points[len(c.points)-1].x {
			c.points = append(c.points, p)
		}
	}
	return content{curves: [][]curve{{c}}, setup: r.parts(), note: "the last point is the slowest lookup"}, nil
})

// ratesReport is what is used of a report of hitbench run with several rates.
type ratesReport struct {
	load
	Steps []struct {
		Rate float64 `json:"rate"` // offered, lookups a second
		Done float64 `json:"requests_per_s"`
		P50  float64 `json:"p50_us"`
		P99  float64 `json:"p99_us"`
	} `json:"steps"`
}

// fallenShort is the share of the offered rate below which a step has a ring.
const fallenShort = 0.98

// knee draws latency over throughput at rising load. Where less was achieved than offered the
// points have rings.
var knee = kindOf("Latency at rising load", []panel{
	over(axis{"achieved (lookups/s)", log}, axis{"latency (µs)", log}),
}, func(s Source, r ratesReport, _ Options) (content, error) {
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
	c := content{curves: [][]curve{{p50, p99}}, setup: r.parts()}
	if len(short.points) > 0 {
		c.curves[0] = append(c.curves[0], short)
		c.note = fmt.Sprintf("ringed: under %.0f %% of the rate", 100*fallenShort)
	}
	return c, nil
})

// sweepReport is what is used of a report of hitbench run over connections and loops.
type sweepReport struct {
	load
	Points []struct {
		Loops       int            `json:"loops"` // 0: not known
		Connections float64        `json:"connections"`
		PerSecond   measure.Spread `json:"requests_per_s"`
	} `json:"points"`
}

// scaling draws throughput over connections, a curve for each number of loops.
var scaling = kindOf("Throughput by connections and event loops", []panel{
	over(axis{"connections", log}, axis{"throughput (lookups/s)", linear}),
}, func(s Source, r sweepReport, _ Options) (content, error) {
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
	return content{curves: [][]curve{p.curves}, setup: r.parts()}, nil
})

// withBar returns a point with a bar from the least to the largest of the rounds, if these
// differ.
func withBar(x, y float64, rounds measure.Spread) point {
	if rounds.Min >= rounds.Max {
		return point{x: x, y: y}
	}
	return point{x, y, min(rounds.Min, y), max(rounds.Max, y)}
}
