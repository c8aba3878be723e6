package compare

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/hitline/hitline/bench/measure"
)

// sampler asks one rival for the requests of a workload and keeps what that took.
type sampler struct {
	rival  *rival
	client client
	load   *chainSet

	next     int // number of the next request of the rotation
	perRound int // requests
	left     int // of this round

	requests []request // of a batch; reused
	answers  []answer  // likewise

	round      []time.Duration // of this round
	all        []time.Duration // of all rounds
	medians    []float64       // of the rounds
	wrong      int             // answers, of all requests
	firstWrong string          // what the first wrong one was
}

// ask sends the next n requests and checks their answers, which are valid until the
// next call.
func (s *sampler) ask(ctx context.Context, n int) ([]answer, error) {
	s.requests = s.requests[:0]
	for i := range n {
		s.requests = append(s.requests, s.load.request(s.next+i))
	}
	var err error
	s.answers, err = s.client.ask(ctx, s.requests, s.answers[:0])
	if err != nil {
		return nil, fmt.Errorf("%v, %d hashes: %w", s.rival, s.load.hashes, err)
	}
	for i, a := range s.answers {
		want := s.load.want(s.requests[i])
		if s.rival.allMiss {
			want = 0
		}
		if a.hit == want {
			continue
		}
		s.wrong++
		if s.firstWrong == "" {
			s.firstWrong = fmt.Sprintf("%v, %d hashes, request %d: expected %d hit tokens, got %d", s.rival, s.load.hashes, s.next+i+1, want, a.hit)
		}
	}
	s.next += n
	return s.answers, nil
}

// askBatch sends at most n of the requests that are left of this round.
func (s *sampler) askBatch(ctx context.Context, n int) error {
	n = min(n, s.left)
	if n == 0 {
		return nil
	}
	answers, err := s.ask(ctx, n)
	for _, a := range answers {
		s.round = append(s.round, a.took)
	}
	s.left -= n
	return err
}

// endRound takes the median of the round.
func (s *sampler) endRound() {
	s.all = append(s.all, s.round...)
	slices.Sort(s.round)
	s.medians = append(s.medians, measure.PercentileUs(s.round, 50))
	s.round = s.round[:0]
}

// row makes the report's row. The bases are the samplers that its ratios are to; one
// may be nil.
func (s *sampler) row(hitline, zmtp *sampler) Row {
	slices.Sort(s.all)
	r := Row{
		Rival: s.rival.name, Way: s.rival.way, Client: s.rival.client, Version: s.rival.version, Note: s.rival.note, Hashes: s.load.hashes,
		P50us: measure.PercentileUs(s.all, 50), P50usMin: slices.Min(s.medians), P50usMax: slices.Max(s.medians),
		P99us: measure.PercentileUs(s.all, 99), MaxUs: measure.PercentileUs(s.all, 100), Requests: len(s.all), Wrong: s.wrong,
	}
	r.UsPerHash = math.Round(1e5*r.P50us/float64(s.load.hashes)) / 1e5
	r.Ratio, r.RatioMin, r.RatioMax = s.ratio(hitline)
	if zmtp != nil && s.rival.zmtp {
		r.RatioZMTP, _, _ = s.ratio(zmtp)
	}
	return r
}

// ratio returns the median of the rounds' ratios to another sampler, the least and the
// largest.
func (s *sampler) ratio(to *sampler) (median, least, most float64) {
	ratios := make([]float64, len(s.medians))
	for i, m := range s.medians {
		ratios[i] = measure.Round3(m / to.medians[i])
	}
	return measure.Range(ratios)
}
