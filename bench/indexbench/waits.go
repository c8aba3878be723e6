package indexbench

import (
	"math"
	"slices"
	"time"

	"github.com/hitline/hitline/bench/measure"
)

// Waits are how long lookups took, counted from when each was due, in microseconds. A
// percentile and the maximum are those of all lookups of all rounds; a spread is the
// least and the largest of the rounds.
//
// A lookup that was due and not begun when its phase ended counts with its wait until
// then, which is a lower bound. A figure that such a wait may have lowered is one, too.
type Waits struct {
	P50us float64 `json:"p50_us"`
	P99us float64 `json:"p99_us"`
	MaxUs float64 `json:"max_us"`

	P50AtLeast bool `json:"p50_us_at_least"` // P50us is a lower bound
	P99AtLeast bool `json:"p99_us_at_least"` // P99us is
	MaxAtLeast bool `json:"max_us_at_least"` // MaxUs is

	P50Spread Spread `json:"p50_us_spread"`
	P99Spread Spread `json:"p99_us_spread"`
	MaxSpread Spread `json:"max_us_spread"`

	Lookups int `json:"lookups"` // that were due
	Unbegun int `json:"unbegun"` // of these, not begun when their phase ended
}

// roundWaits are the waits of one phase.
type roundWaits struct {
	done    []time.Duration // of lookups that were made
	unbegun []time.Duration // of those that were not, until the end of the phase
}

// waits are those of all quiet phases, or of all busy ones.
type waits struct {
	all               roundWaits
	p50, p99, longest passes // of the rounds
}

// add adds the waits of a phase, in which at least one lookup was due.
func (w *waits) add(round roundWaits) {
	w.all.done = append(w.all.done, round.done...)
	w.all.unbegun = append(w.all.unbegun, round.unbegun...)
	sorted := round.sorted()
	w.p50 = append(w.p50, measure.PercentileUs(sorted, 50))
	w.p99 = append(w.p99, measure.PercentileUs(sorted, 99))
	w.longest = append(w.longest, measure.PercentileUs(sorted, 100))
}

func (r roundWaits) sorted() []time.Duration {
	all := slices.Concat(r.done, r.unbegun)
	slices.Sort(all)
	return all
}

// summarize makes the figures.
func (w *waits) summarize() Waits {
	sorted := w.all.sorted()
	least := time.Duration(math.MaxInt64)
	if len(w.all.unbegun) > 0 {
		least = slices.Min(w.all.unbegun)
	}
	// The lookups not begun would have taken longer than they count. That can raise only
	// percentiles from the least of them on.
	percentile := func(p float64) (us float64, atLeast bool) {
		d := measure.Percentile(sorted, p)
		return measure.Micros(d), d >= least
	}
	r := Waits{
		Lookups: len(sorted), Unbegun: len(w.all.unbegun),
		P50Spread: w.p50.spread(), P99Spread: w.p99.spread(), MaxSpread: w.longest.spread(),
	}
	r.P50us, r.P50AtLeast = percentile(50)
	r.P99us, r.P99AtLeast = percentile(99)
	r.MaxUs, r.MaxAtLeast = percentile(100)
	return r
}

// atLeastMark returns what stands in front of a figure in a table: ≥ for a lower bound.
func atLeastMark(atLeast bool) string {
	if atLeast {
		return "≥"
	}
	return ""
}
