package load

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/bench/measure"
)

// The tallies of the workers make one step.
func TestStep(t *testing.T) {
	const second = int64(time.Second)
	all := newTally(second)
	for worker, took := range []int64{1000, 5000, 9000} {
		one := newTally(second)
		one.to, one.requests, one.unsent = second*int64(worker+3), int64(10+worker), 3
		for range one.requests {
			one.took(took)
		}
		all.add(one)
	}
	const five, nine = 5.0, 9.01 // 9 to 0.1 %
	s := all.step(50, 10)
	assert.Equal(t, Step{
		Rate: 50, Seconds: 4, Requests: 33, RequestsPerSecond: 8.3, HashesPerSecond: 82.5, Unsent: 9,
		Latency: measure.Latency{P50us: five, P90us: nine, P99us: nine, P999us: nine, MaxUs: nine, MeanUs: s.MeanUs},
	}, s)
	assert.InDelta(t, (10*1+11*5+12*9)/33.0, s.MeanUs, 0.1)
}

// What was never sent makes the figures from there on lower bounds, and they say so.
func TestAtLeast(t *testing.T) {
	all := newTally(0)
	all.to = 1e9
	for range 80 {
		all.took(100_000)
	}
	all.recordUnsent(700_000_000)
	other := newTally(0)
	for range 19 {
		other.recordUnsent(400_000_000)
	}
	all.add(other)
	s := all.step(100, 1)
	assert.EqualValues(t, 20, s.Unsent)
	assert.InDelta(t, 400_000, s.AtLeast, 0.1)
	assert.InEpsilon(t, 100, s.P50us, 1e-3)
	assert.InEpsilon(t, 400_000, s.P99us, 1e-3)
	assert.InEpsilon(t, 700_000, s.MaxUs, 1e-3)
	r := Report{Mode: "open"}
	r.add(s, all)
	r.add(all.step(200, 1), all)
	var text strings.Builder
	require.NoError(t, r.WriteTable(&text))
	assert.Contains(t, text.String(), "latency      with stalls\n")
	for _, rate := range []string{"100", "200"} {
		assert.Regexp(t, rate+` +0 +20 +100\.0 +≥ 400\S+ +≥ 400\S+ +≥ 7\S+ +≥ 7\S+\n`, text.String(), "each rate has a row")
	}
}

func TestValidate(t *testing.T) {
	require.NoError(t, with("x", same).Validate())
	for text, change := range map[string]func(*Options){
		"0 connections":                      func(o *Options) { o.Connections = 0 },
		"1025 requests under way":            func(o *Options) { o.Pipeline = 1025 },
		"0 hashes; give 1 to 2000000":        func(o *Options) { o.Hashes = 0 },
		"-5 entries":                         func(o *Options) { o.Entries = -5 },
		"a share of 1.5 of lookups that hit": func(o *Options) { o.HitShare = 1.5 },
		"a rate of 0 requests":               func(o *Options) { o.Rates = []float64{5, 0} },
		"none may be negative":               func(o *Options) { o.Warmup = -1 },
		"-1 requests":                        func(o *Options) { o.Requests = -1 },
		"how long to measure or how many":    func(o *Options) { o.Duration = 1 },
		"how long to measure or":             func(o *Options) { o.Requests = 0 },
		"a timeout of 0s":                    func(o *Options) { o.Timeout = 0 },
	} {
		err := with("x", change).Validate()
		require.ErrorIs(t, err, measure.ErrOptions, text)
		assert.ErrorContains(t, err, text)
	}
}
