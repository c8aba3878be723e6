//go:build linux

package compare

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/hitline/hitline/bench/measure"
)

// sampled returns a sampler with a round for each number of microseconds, of which the lookups
// took a little less, and a little more.
func sampled(name string, us ...float64) *sampler {
	s := &sampler{rival: &rival{rivalKind: rivalKind{name: name}}, load: lookupsOf(10, 20, 1), perRound: 3}
	for _, v := range us {
		for _, took := range []float64{v - 1, v, v + 1} {
			s.round = append(s.round, time.Duration(took*1000))
		}
		s.endRound()
		s.rates = append(s.rates, 1e6/v)
	}
	return s
}

// A percentile is that of all rounds; a ratio is the median of the rounds' ratios.
func TestRow(t *testing.T) {
	raw, hitline := sampled(RawSocket, 10, 20, 30), sampled(Hitline, 11, 24, 30)
	r := hitline.row(hitline, raw)
	assert.Equal(t, measure.Times{
		P50: 24, P99: 31, Max: 31, Rounds: measure.Spread{Median: 24, Min: 11, Max: 30}, Requests: 9,
	}, r.Times)
	assert.Equal(t, measure.Spread{Median: 1.1, Min: 1, Max: 1.2}, r.ToRaw, "not 24 to 20")
	assert.Equal(t, measure.Spread{Median: 1, Min: 1, Max: 1}, r.Ratio)
	assert.Equal(t, measure.Spread{Median: 0.909, Min: 0.833, Max: 1}, r.RateToRaw)
	assert.Zero(t, r.Wrong)
	assert.Equal(t, measure.Spread{Median: 0.909, Min: 0.833, Max: 1}, raw.row(hitline, raw).Ratio)
	assert.Zero(t, hitline.row(hitline, nil).ToRaw)

	slow := sampled(RawSocket, 1, 1, 50) // one round of three
	assert.InDelta(t, 51, slow.row(slow, nil).P99, 0, "not the median of the rounds' percentiles")
}

// Wrong answers are counted, and the first is told of.
func TestCheck(t *testing.T) {
	s := &sampler{rival: &rival{rivalKind: rivalKind{name: Python}}, load: lookupsOf(10, 20, 1)}
	s.load.Cut(0)
	s.draw(3)
	s.draw(2)
	for i, l := range s.lookups {
		s.check(i, s.load.Want(l)+uint32(16*i))
	}
	assert.Equal(t, 1, s.wrong)
	assert.Regexp(t, `^python-zmq, 10 hashes, request 5: expected \d+ hit tokens, got \d+$`, s.firstWrong)
}
