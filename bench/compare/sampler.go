//go:build linux

package compare

import (
	"context"
	"fmt"
	"time"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/workload"
)

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

	round        []time.Duration // of the lookups of this round
	rounds       measure.Rounds
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
	return s.ask(ctx, n, func(d time.Duration) { s.round = append(s.round, d) })
}

// endRound takes the times of the round.
func (s *sampler) endRound() {
	if len(s.round) > 0 {
		s.rounds.AddRound(s.round)
		s.round = s.round[:0]
	}
}

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
		Times: s.rounds.Times(), Wrong: s.wrong,
	}
	if hitline != nil {
		r.Ratio = s.rounds.Ratio(hitline.rounds)
	}
	if len(s.rates) > 0 {
		r.Rate = measure.SpreadOf(s.rates)
	}
	if raw == nil {
		return r
	}
	r.ToRaw = s.rounds.Ratio(raw.rounds)
	if len(s.rates) > 0 && len(raw.rates) > 0 {
		r.RateToRaw = measure.RatioOf(s.rates, raw.rates)
	}
	return r
}
