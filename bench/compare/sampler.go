//go:build linux

package compare

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/workload"
)

// times are those of many lookups.
type times struct {
	round, all []time.Duration
	p50        []float64 // of each round that had some, in microseconds
}

// endRound takes the percentiles of the round.
func (t *times) endRound() {
	if len(t.round) == 0 {
		return
	}
	slices.Sort(t.round)
	t.all = append(t.all, t.round...)
	t.p50 = append(t.p50, measure.PercentileUs(t.round, 50))
	t.round = t.round[:0]
}

// figures returns those of all rounds, and sorts all times.
func (t *times) figures() Figures {
	slices.Sort(t.all)
	return Figures{
		P50us: measure.PercentileUs(t.all, 50), P99us: measure.PercentileUs(t.all, 99), MaxUs: measure.PercentileUs(t.all, 100),
		RoundP50us: measure.SpreadOf(t.p50),
	}
}

// sampler asks one rival for lookups and keeps what that took.
type sampler struct {
	rival  *rival
	client *client
	load   *lookups

	next     int // number of the next lookup of the rotation
	perRound int // lookups
	left     int // of this round

	lookups []workload.Lookup // of a batch; reused
	hits    []uint32          // of a pipelined batch; reused

	all          times
	rates        []float64     // requests a second, of the pipelined rounds
	tookPipeline time.Duration // of this pipelined round

	wrong      int    // answers, of all lookups
	firstWrong string // what the first wrong one was
}

// draw makes the next n lookups.
func (s *sampler) draw(n int) {
	s.lookups = s.lookups[:0]
	for i := range n {
		s.lookups = append(s.lookups, s.load.Lookup(s.next+i))
	}
	s.next += n
}

// check compares the hit of a lookup, the i-th of those drawn.
func (s *sampler) check(i int, hit uint32) {
	want := s.load.Want(s.lookups[i])
	if s.rival.allMiss {
		want = 0
	}
	if hit == want {
		return
	}
	s.wrong++
	if s.firstWrong == "" {
		number := s.next - len(s.lookups) + i + 1
		s.firstWrong = fmt.Sprintf("%s, %d hashes, request %d: expected %d hit tokens, got %d", s.rival.name, s.load.Hashes(), number, want, hit)
	}
}

// failed says which rival met err.
func (s *sampler) failed(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s, %d hashes: %w", s.rival.name, s.load.Hashes(), err)
}

// ask sends the next n lookups, checks their answers, and gives how long each took to took.
func (s *sampler) ask(ctx context.Context, n int, took func(time.Duration)) error {
	s.draw(n)
	for i, l := range s.lookups {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		hit, d, err := s.client.ask(l)
		if err != nil {
			return s.failed(err)
		}
		s.check(i, hit)
		took(d)
	}
	return nil
}

// askBatch sends at most n of the lookups that are left of this round.
func (s *sampler) askBatch(ctx context.Context, n int) error {
	n = min(n, s.left)
	s.left -= n
	return s.ask(ctx, n, func(d time.Duration) { s.all.round = append(s.all.round, d) })
}

// endRound takes the figures of the round.
func (s *sampler) endRound() { s.all.endRound() }

// askPipelined sends at most n of the lookups that are left of this round, depth of them under
// way.
func (s *sampler) askPipelined(n, depth int) error {
	n = min(n, s.left)
	s.left -= n
	s.draw(n)
	start := time.Now()
	var err error
	s.hits, err = s.client.pipeline(s.lookups, depth, s.hits[:0])
	s.tookPipeline += time.Since(start)
	for i, hit := range s.hits {
		s.check(i, hit)
	}
	return s.failed(err)
}

// endPipelined takes the rate of a pipelined round.
func (s *sampler) endPipelined() {
	s.rates = append(s.rates, measure.Round(float64(s.perRound)/s.tookPipeline.Seconds(), 3))
	s.tookPipeline = 0
}

// row makes the report's row. The bases are the samplers that its ratios are to; each
// may be nil.
func (s *sampler) row(hitline, raw *sampler) Row {
	r := Row{
		Rival: s.rival.name, Version: s.rival.version, Note: s.rival.note, Hashes: s.load.Hashes(),
		Figures: s.all.figures(), Requests: len(s.all.all), Wrong: s.wrong,
	}
	if hitline != nil {
		r.Ratio = measure.SpreadOf(measure.Ratios(s.all.p50, hitline.all.p50))
	}
	if len(s.rates) > 0 {
		r.Rate = measure.SpreadOf(s.rates)
	}
	if raw == nil {
		return r
	}
	r.ToRaw = measure.SpreadOf(measure.Ratios(s.all.p50, raw.all.p50))
	if len(s.rates) > 0 && len(raw.rates) > 0 {
		r.RateToRaw = measure.SpreadOf(measure.Ratios(s.rates, raw.rates))
	}
	return r
}
