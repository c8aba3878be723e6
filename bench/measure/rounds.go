package measure

import (
	"slices"
	"time"
)

// Rounds are what requests of one side took, in microseconds: the sorted times of each round, of which there must be one.
type Rounds [][]float64

// AddRound adds the times of a round, to 0.01 us.
func (r *Rounds) AddRound(times []time.Duration) {
	us := make([]float64, len(times))
	for i, d := range times {
		us[i] = Micros(d)
	}
	slices.Sort(us)
	*r = append(*r, us)
}

// Times are durations of requests, in microseconds.
type Times struct {
	P50      float64 `json:"p50_us"`        // of the requests of all rounds, as p99_us and max_us
	Rounds   Spread  `json:"p50_us_rounds"` // of the rounds' medians
	P99      float64 `json:"p99_us"`
	Max      float64 `json:"max_us"`
	Requests int     `json:"requests"`
}

// Times returns the figures of all rounds.
func (r Rounds) Times() Times {
	all := slices.Concat(r...)
	slices.Sort(all)
	return Times{
		P50: Percentile(all, 50), Rounds: SpreadOf(r.medians()), P99: Percentile(all, 99), Max: all[len(all)-1], Requests: len(all),
	}
}

// medians returns the median of each round.
func (r Rounds) medians() []float64 {
	figures := make([]float64, len(r))
	for i, times := range r {
		figures[i] = Percentile(times, 50)
	}
	return figures
}

// Ratio returns the ratios of the medians to those of others, in the same rounds.
func (r Rounds) Ratio(others Rounds) Spread { return RatioOf(r.medians(), others.medians()) }
