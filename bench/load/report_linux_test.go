package load

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/bench/measure"
)

// Windows of equal time are one sample; what is cut short is in the total only. A sample without
// lookups has no median.
func TestCollect(t *testing.T) {
	c := newCollector(2)
	give := func(from, to, requests, took int64, last bool) {
		w := c.fresh(from, to)
		w.requests, w.last, w.unsent = requests, last, 1
		for range requests {
			require.NoError(t, w.latency.RecordValue(took))
		}
		c.full <- w
	}
	const second = int64(time.Second)
	var told []Sample
	done := make(chan *measured)
	go func() { done <- c.collect(2, func(s Sample) { told = append(told, s) }) }()
	give(second, 2*second, 10, 1000, false)
	give(second, 2*second, 30, 3000, false)
	give(2*second, 3*second, 20, 5000, false)
	give(2*second, 3*second, 20, 5000, false)
	give(3*second, 4*second, 0, 0, false)
	give(3*second, 4*second, 0, 0, false)
	give(4*second, 4*second+second/2, 7, 9000, true)
	give(4*second, 5*second, 5, 9000, false) // the other worker has ended
	give(5*second, 5*second, 0, 0, true)
	m := <-done
	assert.Equal(t, []Sample{
		{Elapsed: 1, RequestsPerSecond: 40, P50us: 3, P99us: 3}, {Elapsed: 2, RequestsPerSecond: 40, P50us: 5, P99us: 5}, {Elapsed: 3},
	}, told)
	assert.EqualValues(t, 92, m.total.latency.TotalCount())

	const nine = 9.01 // 9 to 0.1 %
	s := m.step(50, 10)
	assert.Equal(t, Step{
		Rate: 50, Seconds: 4, Requests: 92, RequestsPerSecond: 23, HashesPerSecond: 230, Unsent: 9,
		Latency:  measure.Latency{P50us: 5, P90us: nine, P99us: nine, P999us: nine, MaxUs: nine, MeanUs: s.MeanUs},
		P50usMin: 3, P50usMax: 5,
	}, s)
	assert.InDelta(t, (10*1+30*3+40*5+12*9)/92.0, s.MeanUs, 0.1)
}

// What was never sent makes the figures from there on lower bounds, and they say so.
func TestAtLeast(t *testing.T) {
	m := &measured{total: window{from: 0, to: 1e9, latency: newHistogram()}}
	for range 80 {
		m.total.took(100_000)
	}
	m.total.recordUnsent(700_000_000)
	other := window{latency: newHistogram()}
	for range 19 {
		other.recordUnsent(400_000_000)
	}
	m.total.add(&other)
	s := m.step(100, 1)
	assert.EqualValues(t, 20, s.Unsent)
	assert.InDelta(t, 400_000, s.AtLeast, 0.1)
	assert.InEpsilon(t, 100, s.P50us, 1e-3)
	assert.InEpsilon(t, 400_000, s.P99us, 1e-3)
	assert.InEpsilon(t, 700_000, s.MaxUs, 1e-3)
	r := Report{Mode: "open"}
	r.add(s, m)
	r.add(m.step(200, 1), m)
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
	assert.Equal(t, 300*time.Millisecond, Options{Duration: 3 * time.Second}.window())
	assert.Equal(t, time.Second, Options{Duration: time.Hour}.window())
}
