package replay

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hitline/hitline/bench/workload"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// replayed replays trace over targets, or over one new fake, and wants no error.
func replayed(t *testing.T, trace workload.Trace, change func(*Options), targets ...Target) Report {
	t.Helper()
	o := options(trace)
	o.nap = time.Sleep // the exact wait spins, which does not move a clock that stands
	if change != nil {
		change(&o)
	}
	if len(targets) == 0 {
		targets = []Target{newFake(t)}
	}
	r, err := Run(t.Context(), o, targets...)
	require.NoError(t, err)
	return r
}

// slow is a target whose lookups take as long as took says, by the number of the
// call, from 1. It notes when they came.
type slow struct {
	*fake
	began time.Time
	took  func(call int) time.Duration
	came  []time.Duration
}

func newSlow(t *testing.T, took func(call int) time.Duration) *slow {
	return &slow{fake: newFake(t), began: time.Now(), took: took}
}

func (s *slow) Lookup(ctx context.Context, numTokens uint32, hashes []byte, length int) (uint32, error) {
	s.came = append(s.came, time.Since(s.began))
	time.Sleep(s.took(len(s.came)))
	return s.fake.Lookup(ctx, numTokens, hashes, length)
}

func TestReplaySpeed(t *testing.T) {
	const ms = time.Millisecond
	tests := map[string]struct {
		speed  float64
		took   []time.Duration // of each lookup
		came   []time.Duration // when each was sent
		behind float64         // milliseconds
		p50ms  float64         // the second of four latencies
		maxMs  float64
		second float64
	}{
		"as recorded":     {1, []time.Duration{1 * ms, 2 * ms, 3 * ms, 4 * ms}, []time.Duration{0, 100 * ms, 102 * ms, 400 * ms}, 2, 2, 5, 0.404},
		"half as fast":    {0.5, []time.Duration{1 * ms, 1 * ms, 1 * ms, 1 * ms}, []time.Duration{0, 200 * ms, 201 * ms, 800 * ms}, 1, 1, 2, 0.801},
		"a hundred times": {100, []time.Duration{0, 0, 0, 0}, []time.Duration{0, 1 * ms, 1 * ms, 4 * ms}, 0, 0, 0, 0.004},
		// The first answer is 150 ms late for the second request, and so on.
		"behind":   {1, []time.Duration{250 * ms, 1 * ms, 1 * ms, 1 * ms}, []time.Duration{0, 250 * ms, 251 * ms, 400 * ms}, 151, 151, 250, 0.401},
		"flat out": {0, []time.Duration{250 * ms, 1 * ms, 1 * ms, 3 * ms}, []time.Duration{0, 250 * ms, 251 * ms, 252 * ms}, 0, 1, 250, 0.255},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSlow(t, func(call int) time.Duration { return tt.took[call-1] })
				var at []time.Duration
				r := replayed(t, traceOf(t, timed), func(o *Options) {
					o.Speed = tt.speed
					o.OnRequest = func(d time.Duration) { at = append(at, d) }
				}, s)
				assert.Equal(t, tt.came, s.came)
				assert.Equal(t, tt.speed, r.Speed)
				assert.Equal(t, tt.behind, r.BehindMaxMs)
				assert.InEpsilon(t, 1+tt.p50ms*1e3, 1+r.P50us, 1e-3)
				assert.InEpsilon(t, 1+tt.maxMs*1e3, 1+r.MaxUs, 1e-3)
				assert.Equal(t, tt.second, r.Seconds)
				assert.EqualValues(t, 4, r.HitBlocks)
				assert.Zero(t, r.Wrong)
				if tt.speed > 0 {
					assert.Equal(t, []time.Duration{0, 100 * ms, 100 * ms, 400 * ms}, at)
				}
			})
		})
	}
}

// Each connection keeps to the trace's times by itself.
func TestReplaySpeedConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		quick := newSlow(t, func(int) time.Duration { return 0 })
		late := newSlow(t, func(int) time.Duration { return 150 * time.Millisecond })
		r := replayed(t, traceOf(t, timed), func(o *Options) { o.Speed = 1 }, quick, late)
		assert.Equal(t, []time.Duration{0, 100e6, 100e6, 400e6}, quick.came)
		assert.Equal(t, []time.Duration{0, 150e6, 300e6, 450e6}, late.came)
		assert.Equal(t, 200.0, r.BehindMaxMs)
	})
}

// A wait for what is due in an hour ends with the replay.
func TestReplaySpeedInterrupted(t *testing.T) {
	trace := traceOf(t, "{\"timestamp\":0,\"hash_ids\":[1]}\n{\"timestamp\":3600000,\"hash_ids\":[1]}\n")
	synctest.Test(t, func(t *testing.T) {
		stopped := errors.New("stopped by hand")
		ctx, stop := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Minute, func() { stop(stopped) })
		o := options(trace)
		o.Speed, o.nap = 1, time.Sleep
		start := time.Now()
		r, err := Run(ctx, o, newFake(t))
		require.ErrorIs(t, err, stopped)
		assert.Equal(t, time.Minute, time.Since(start))
		assert.EqualValues(t, 1, r.Requests)
		assert.True(t, r.Partial)
	})
}

// A speed that stretches the trace past all calendars waits, and does not overflow.
func TestReplaySpeedTiny(t *testing.T) {
	p := newPlayer(0, nil, Options{Speed: 1e-300}, time.Now(), nil)
	assert.Greater(t, p.due(time.Millisecond).Sub(p.start), 50*365*24*time.Hour)
}

func TestTimestamps(t *testing.T) {
	const good = "{\"timestamp\":5,\"hash_ids\":[1]}\n"
	tests := map[string]struct {
		second string // after one at 5
		want   string // of the error, or empty
	}{
		"equal":     {`{"timestamp":5,"hash_ids":[1]}`, ""},
		"later":     {`{"timestamp":5.5,"hash_ids":[1]}`, ""},
		"exponent":  {`{"timestamp":1e3,"hash_ids":[1]}`, ""},
		"a year":    {`{"timestamp":31622400005,"hash_ids":[1]}`, ""},
		"backwards": {`{"timestamp":4,"hash_ids":[1]}`, "timestamp 4 is before 5, the line above's; put the lines in order of time"},
		"missing":   {`{"hash_ids":[1]}`, "timestamp is missing; a replay at a speed needs one on every line, in milliseconds"},
		"text":      {`{"timestamp":"6","hash_ids":[1]}`, `timestamp is "6"; it must be a number of milliseconds`},
		"null":      {`{"timestamp":null,"hash_ids":[1]}`, "timestamp is null; it must be a number of milliseconds"},
		"an object": {`{"timestamp":{"seconds":12345678901234567890},"hash_ids":[1]}`, `timestamp is {"seconds":1234567890123; it must be a number of milliseconds`},
		"too great": {`{"timestamp":1e999,"hash_ids":[1]}`, "timestamp is 1e999; it must be a number of milliseconds"},
		"over a year": {`{"timestamp":31622400006,"hash_ids":[1]}`,
			"timestamp 3.1622400006e+10 is over a year after the first, 5; timestamps are in milliseconds"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			o := options(traceOf(t, good+tt.second))
			_, err := o.CountRequests(t.Context())
			require.NoError(t, err, "flat out, it is not looked at")

			o.Speed = 1
			n, err := o.CountRequests(t.Context())
			if tt.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, workload.ErrTrace)
			require.EqualError(t, err, "bad trace: t.jsonl:2: "+tt.want)
			assert.Equal(t, 1, n)
			_, replayErr := Run(t.Context(), o, newFake(t))
			assert.Equal(t, err, replayErr)
		})
	}
}

// The time of a line without one is not that of the line before.
func TestTimestampIsNotKept(t *testing.T) {
	o := options(traceOf(t, strings.Repeat("{\"timestamp\":5,\"hash_ids\":[1]}\n", 3)+"{\"hash_ids\":[1]}"))
	o.Speed = 1
	_, err := o.CountRequests(t.Context())
	require.ErrorContains(t, err, "t.jsonl:4: timestamp is missing")
}
