//go:build linux

package main

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/hitline/hitline/bench/measure"
)

// loadRow is a load that hitbench and the generator make in turn.
type loadRow struct{ connections, hashes int }

// name is that of --only.
func (r loadRow) name() string { return fmt.Sprintf("%dx%d", r.connections, r.hashes) }

// loadRows returns all rows. Names are connections times hashes.
func loadRows() (rows []loadRow) {
	for _, hashes := range []int{64, 8192} {
		for _, connections := range []int{1, 4} {
			rows = append(rows, loadRow{connections, hashes})
		}
	}
	return rows
}

// loadReport is the result of comparing the two generators.
type loadReport struct {
	Setup       measure.Setup `json:"setup"`
	Pairs       int           `json:"pairs"`
	Seconds     float64       `json:"seconds"` // of each run
	Tolerance   float64       `json:"tolerance"`
	SharedCore  bool          `json:"shared_core,omitempty"` // of server and clients, for want of a second one
	Comparisons []comparison  `json:"comparisons"`
}

// comparison is one figure, measured in two ways.
type comparison struct {
	Connections int    `json:"connections"`
	Hashes      int    `json:"hashes"`
	Figure      string `json:"figure"`
	Of          string `json:"of"`     // how the first value was measured
	Beside      string `json:"beside"` // and the second

	Value       float64      `json:"value"` // median of the pairs
	BesideValue float64      `json:"beside_value"`
	Ratio       float64      `json:"ratio"` // of the medians
	RatioLeast  float64      `json:"ratio_least"`
	RatioMost   float64      `json:"ratio_most"`
	Pairs       [][2]float64 `json:"pairs"`

	Judged bool `json:"judged"` // the two must agree
	Agrees bool `json:"agrees"`
}

// pair is one run of each kind, of one row.
type pair struct{ hitbench, generator, openHitbench, openGenerator, spinning result }

// measureLoads runs the rows.
func measureLoads(ctx context.Context, b *bed, rows []loadRow) (report, error) {
	r := &loadReport{Setup: measure.NewSetup(b.o.seed), Pairs: b.o.pairs, Seconds: b.o.seconds, Tolerance: b.o.tolerance, SharedCore: b.shared}
	for _, row := range rows {
		var pairs []pair
		for i := range b.o.pairs {
			p, err := b.measurePair(ctx, row, i)
			if err != nil {
				return r, fmt.Errorf("%s: %w", row.name(), err)
			}
			pairs = append(pairs, p)
		}
		r.Comparisons = append(r.Comparisons, compare(row, pairs, b.o.tolerance)...)
	}
	return r, nil
}

// measurePair makes the runs of one pair. Hitbench begins in every second one.
func (b *bed) measurePair(ctx context.Context, row loadRow, i int) (p pair, err error) {
	both := func(l load, ofHitbench, ofGenerator *result) error {
		runs := []func() error{
			func() (err error) { *ofHitbench, err = b.runHitbench(ctx, l); return err },
			func() (err error) { *ofGenerator, err = b.runGenerator(ctx, l); return err },
		}
		if i%2 == 1 {
			slices.Reverse(runs)
		}
		for _, run := range runs {
			if err := run(); err != nil {
				return err
			}
		}
		b.progress("%s, pair %d of %d, rate %.0f: hitbench %.0f/s, p50 %.1f µs; generator %.0f/s, p50 %.1f µs", row.name(), i+1, b.o.pairs,
			l.rate, ofHitbench.RequestsPerSecond, ofHitbench.P50us, ofGenerator.RequestsPerSecond, ofGenerator.P50us)
		return nil
	}
	l := load{connections: row.connections, hashes: row.hashes, reset: true}
	if err := both(l, &p.hitbench, &p.generator); err != nil || row.connections > 1 {
		return p, err
	}
	l.rate = p.hitbench.RequestsPerSecond / 2
	if err := both(l, &p.openHitbench, &p.openGenerator); err != nil {
		return p, err
	}
	l.spin = true
	p.spinning, err = b.runGenerator(ctx, l)
	return p, err
}

// compare makes the comparisons of a row. With several connections the lookups of a closed loop
// wait for each other in the server, those of an open loop at half of its rate hardly do: the two
// are compared with one connection only.
func compare(row loadRow, pairs []pair, tolerance float64) []comparison {
	const hitbench, generator = "hitbench", "generator"
	rate := func(r result) float64 { return r.RequestsPerSecond }
	p50 := func(r result) float64 { return r.P50us }
	alone := func(r result) float64 {
		if r.Uncorrected != nil {
			return r.Uncorrected.P50us
		}
		return r.P50us
	}
	made := []comparison{
		newComparison(comparison{Figure: "requests_per_s", Of: hitbench, Beside: generator, Judged: true}, pairs, func(p pair) [2]float64 {
			return [2]float64{rate(p.hitbench), rate(p.generator)}
		}),
		newComparison(comparison{Figure: "p50_us", Of: hitbench + ", uncorrected", Beside: generator, Judged: row.connections == 1}, pairs, func(p pair) [2]float64 {
			return [2]float64{alone(p.hitbench), p50(p.generator)}
		}),
	}
	if row.connections == 1 {
		const open = " at half the rate"
		made = append(made,
			newComparison(comparison{Figure: "p50_us", Of: hitbench + open, Beside: hitbench, Judged: true}, pairs, func(p pair) [2]float64 {
				return [2]float64{p50(p.openHitbench), p50(p.hitbench)}
			}),
			// If the row above differs, these tell why: how long the machine takes to wake a client
			// that sleeps until a lookup is due, and what one waits that does not sleep.
			newComparison(comparison{Figure: "p50_us", Of: hitbench + open, Beside: generator + open}, pairs, func(p pair) [2]float64 {
				return [2]float64{p50(p.openHitbench), p50(p.openGenerator)}
			}),
			newComparison(comparison{Figure: "p50_us", Of: hitbench + open, Beside: "spinning " + generator + open}, pairs, func(p pair) [2]float64 {
				return [2]float64{p50(p.openHitbench), p50(p.spinning)}
			}))
	}
	for i := range made {
		made[i].Connections, made[i].Hashes = row.connections, row.hashes
		made[i].Agrees = agrees(made[i].Ratio, tolerance)
	}
	return made
}

// newComparison fills in the values.
func newComparison[P any](c comparison, pairs []P, values func(P) [2]float64) comparison {
	var first, second, ratios []float64
	for _, p := range pairs {
		v := values(p)
		c.Pairs = append(c.Pairs, v)
		first, second, ratios = append(first, v[0]), append(second, v[1]), append(ratios, v[0]/v[1])
	}
	c.Value, c.BesideValue = median(first), median(second)
	c.Ratio, c.RatioLeast, c.RatioMost = round3(c.Value/c.BesideValue), round3(slices.Min(ratios)), round3(slices.Max(ratios))
	return c
}

// agrees tells whether two figures of this ratio differ by no more than a part of the smaller.
func agrees(ratio, tolerance float64) bool { return max(ratio, 1/ratio) <= 1+tolerance }

// median returns the least figure that half of the figures do not exceed, as the reports of
// hitbench define it. There must be one.
func median(figures []float64) float64 { return percentile(slices.Sorted(slices.Values(figures)), 50) }

// percentile returns the p-th percentile of sorted figures, by nearest rank. There must be one.
func percentile(sorted []float64, p int) float64 {
	return sorted[max(1, (p*len(sorted)+99)/100)-1]
}

// round3 keeps three digits behind the point.
func round3(x float64) float64 { return math.Round(x*1000) / 1000 }
