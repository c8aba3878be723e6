package replay

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/workload"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const excerpt = "../testdata/conversation_excerpt.jsonl"

// What an unbounded index answers to the excerpt; counted by another program.
const (
	excerptRequests  = 799
	excerptBlocks    = 21951
	excerptHitBlocks = 4144
)

func options(trace workload.Trace) Options {
	return Options{Trace: trace, BlockSize: workload.BlockTokens, Timeout: time.Minute}
}

// collect makes o keep what OnProblem is told.
func collect(o *Options) *[]error {
	var problems []error
	o.OnProblem = func(err error) { problems = append(problems, err) }
	return &problems
}

// counters returns the report without what depends on the clock, and without
// ratios.
func counters(r Report) Report {
	return Report{
		Trace: r.Trace, Connections: r.Connections, BlockSize: r.BlockSize, Speed: r.Speed,
		Requests: r.Requests, Blocks: r.Blocks, HitBlocks: r.HitBlocks, HitTokens: r.HitTokens,
		Wrong: r.Wrong, Refused: r.Refused, Partial: r.Partial,
	}
}

func TestModelOnExcerpt(t *testing.T) {
	var m workload.Model
	blocks, hits := 0, 0
	requests := 0
	err := options(excerptTrace).each(t.Context(), func(r workload.Request) error {
		requests++
		assert.Equal(t, requests, r.Number)
		blocks += len(r.IDs)
		hits += m.Known(r.IDs)
		m.Add(r.IDs)
		return nil
	})
	require.NoError(t, err)
	assert.Equal(t, excerptRequests, requests)
	assert.Equal(t, excerptBlocks, blocks)
	assert.Equal(t, excerptHitBlocks, hits)
}

func TestReplayExcerpt(t *testing.T) {
	for _, tokens := range []int{512, 16} {
		for _, conns := range []int{1, 3} {
			t.Run(fmt.Sprintf("tokens=%d/conns=%d", tokens, conns), func(t *testing.T) {
				o := options(excerptTrace)
				o.BlockSize = tokens
				if tokens == 16 {
					o.Requests = 100 // the fake's map is slow
				}
				requests, blocks, hits := int64(excerptRequests), int64(excerptBlocks), int64(excerptHitBlocks)
				if o.Requests == 100 {
					requests, blocks, hits = 100, 3034*32, 99*32
				}
				problems := collect(&o)
				var told atomic.Int64
				o.OnRequest = func(time.Duration) { told.Add(1) }
				targets := make([]Target, conns)
				index := newFake(t).index
				for i := range targets {
					targets[i] = &fake{t: t, index: index}
				}
				r, err := Run(t.Context(), o, targets...)
				require.NoError(t, err)
				assert.Empty(t, *problems)
				n := int64(conns)
				assert.Equal(t, n*requests, told.Load())
				assert.Equal(t, Report{
					Trace: excerpt, Connections: conns, BlockSize: tokens, Requests: n * requests, Blocks: n * blocks,
					HitBlocks: n * hits, HitTokens: n * hits * int64(tokens),
				}, counters(r))
				assert.Positive(t, r.Seconds)
				assert.Positive(t, r.P50us)
				assert.GreaterOrEqual(t, r.P90us, r.P50us)
				assert.GreaterOrEqual(t, r.P99us, r.P90us)
				assert.GreaterOrEqual(t, r.P999us, r.P99us)
				assert.GreaterOrEqual(t, r.MaxUs, r.P999us)
				assert.InDelta(t, float64(r.Requests)/r.Seconds, r.RequestsPerS, 0.01*r.RequestsPerS)
				assert.InDelta(t, float64(hits)/float64(blocks), r.HitRatio, 1e-6)
				assert.Zero(t, r.BehindMaxMs, "nothing is due flat out")
				assert.GreaterOrEqual(t, r.Seconds*1e6*1.001, r.MaxUs)
			})
		}
	}
}

func TestReplaySmall(t *testing.T) {
	f := newFake(t)
	r, err := Run(t.Context(), options(traceOf(t, small)), f)
	require.NoError(t, err)
	assert.Equal(t, Report{
		Trace: "t.jsonl", Connections: 1, BlockSize: 512, Requests: 5, Blocks: 10, HitBlocks: 6, HitTokens: 3072,
	}, counters(r))
	assert.Equal(t, 5, f.lookups)
	assert.Equal(t, 4, f.stores, "a request without blocks stores nothing")
	assert.Len(t, f.index.stored, 4)
}

func TestReplayLimit(t *testing.T) {
	for limit, want := range map[int]int64{0: 5, 1: 1, 4: 4, 5: 5, 6: 5} {
		o := options(traceOf(t, small))
		o.Requests = limit
		count, err := o.CountRequests(t.Context())
		require.NoError(t, err)
		assert.EqualValues(t, want, count, "limit %d", limit)
		r, err := Run(t.Context(), o, newFake(t))
		require.NoError(t, err)
		assert.Equal(t, want, r.Requests, "limit %d", limit)
	}
	// What lies past the limit is not read.
	o := options(traceOf(t, "{\"hash_ids\":[1]}\nrubbish"))
	o.Requests = 1
	_, err := Run(t.Context(), o, newFake(t))
	require.NoError(t, err)
}

// Numbers of tokens that do not fit the ids are said once, of the requests that are replayed.
func TestReplayLengths(t *testing.T) {
	for text, want := range map[string]string{
		`{"input_length":512,"hash_ids":[1]}`:                 "",
		`{"input_length":513,"hash_ids":[1,2]}`:               "",
		`{"input_length":"many","hash_ids":[1]}`:              "",
		`{"input_length":-5,"hash_ids":[1]}`:                  "",
		"{\"hash_ids\":[]}\n":                                 "",
		`{"input_length":20,"hash_ids":[1,2]}`:                "t.jsonl:1: input_length 20 does not fit 2 hash_ids of 512 tokens, nor do 0 more of 1; the ids are replayed",
		`{"input_length":9223372036854775807,"hash_ids":[1]}`: "",
		"{\"input_length\":512,\"hash_ids\":[1]}\n{\"input_length\":2000,\"hash_ids\":[1]}\n{\"input_length\":1,\"hash_ids\":[]}\n{\"hash_ids\":[1]}\n{\"input_length\":1,\"hash_ids\":[1,2]}": "t.jsonl:2: input_length 2000 does not fit 1 hash_ids of 512 tokens, nor do 1 more of 4; the ids are replayed",
	} {
		o := options(traceOf(t, text))
		o.Requests = 4
		var said []string
		o.OnNote = func(text string) { said = append(said, text) }
		_, err := o.CountRequests(t.Context())
		require.NoError(t, err, text)
		assert.Equal(t, want, strings.Join(said, "; "), text)
	}
}

func TestReplayLies(t *testing.T) {
	const above = "above what was stored; was the index empty at the start?"
	const below = "below what was stored; if the index is bounded, allow for evictions"
	tests := map[string]struct {
		bounded bool
		answer  func(call int, right uint32) (uint32, error)
		want    []WrongError // workload.Trace and Conn are filled in
	}{
		"upward by a block": {
			answer: func(call int, right uint32) (uint32, error) { return right + 512, nil },
			want:   []WrongError{{Request: 1, Expected: 0, Got: 512, Reason: above}, {Request: 2, Expected: 1024, Got: 1536, Reason: above}, {Request: 3, Expected: 512, Got: 1024, Reason: above}, {Request: 4, Expected: 0, Got: 512, Reason: above}, {Request: 5, Expected: 1536, Got: 2048, Reason: above}},
		},
		"upward by a token, bounded": {
			bounded: true,
			answer:  func(call int, right uint32) (uint32, error) { return right + uint32(call/5), nil },
			want:    []WrongError{{Request: 5, Expected: 1536, Got: 1537, Reason: above}},
		},
		"the greatest number": {
			bounded: true,
			answer:  func(call int, right uint32) (uint32, error) { return right - uint32(call%2)*(right+1), nil },
			want:    []WrongError{{Request: 1, Expected: 0, Got: 1<<32 - 1, Reason: above}, {Request: 3, Expected: 512, Got: 1<<32 - 1, Reason: above}, {Request: 5, Expected: 1536, Got: 1<<32 - 1, Reason: above}},
		},
		"downward by a block": {
			answer: func(call int, right uint32) (uint32, error) { return max(right, 512) - 512, nil },
			want:   []WrongError{{Request: 2, Expected: 1024, Got: 512, Reason: below}, {Request: 3, Expected: 512, Got: 0, Reason: below}, {Request: 5, Expected: 1536, Got: 1024, Reason: below}},
		},
		"downward by a block, bounded": {
			bounded: true,
			answer:  func(call int, right uint32) (uint32, error) { return max(right, 512) - 512, nil },
		},
		"downward by a token, bounded": {
			bounded: true,
			answer:  func(call int, right uint32) (uint32, error) { return right - uint32(call/5), nil },
			want:    []WrongError{{Request: 5, Expected: 1536, Got: 1535, Reason: "no multiple of 512"}},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			o := options(traceOf(t, small))
			o.AllowEvicted = tt.bounded
			problems := collect(&o)
			f := newFake(t)
			f.answer = tt.answer
			r, err := Run(t.Context(), o, f)
			require.NoError(t, err)
			assert.EqualValues(t, 5, r.Requests, "goes on after a mismatch")
			assert.EqualValues(t, len(tt.want), r.Wrong)
			assert.Zero(t, r.Refused)
			require.Len(t, *problems, len(tt.want))
			for i, want := range tt.want {
				want.Trace = "t.jsonl"
				assert.Equal(t, &want, (*problems)[i])
			}
		})
	}
}

// With hash blocks of 16 tokens, part of an id can be gone.
func TestReplayPartOfAnID(t *testing.T) {
	o := options(traceOf(t, "{\"hash_ids\":[1]}\n{\"hash_ids\":[1]}\n"))
	o.BlockSize, o.AllowEvicted = 16, true
	f := newFake(t)
	f.answer = func(call int, right uint32) (uint32, error) { return right * 15 / 32, nil }
	r, err := Run(t.Context(), o, f)
	require.NoError(t, err)
	assert.Zero(t, r.Wrong)
	assert.EqualValues(t, 240, r.HitTokens)
	assert.EqualValues(t, 15, r.HitBlocks)
}

func TestWrongErrorText(t *testing.T) {
	err := &WrongError{Trace: "t.jsonl", Request: 7, Connection: 2, Expected: 512, Got: 1024, Reason: "above"}
	assert.Equal(t, "t.jsonl:7: request 7 on connection 2: expected 512 hit tokens, got 1024: above", err.Error())
}

func TestReplayRefusals(t *testing.T) {
	o := options(traceOf(t, small))
	problems := collect(&o)
	f := newFake(t)
	f.answer = func(call int, right uint32) (uint32, error) {
		if call == 2 {
			return 0, refusedFor("not now")
		}
		return right, nil
	}
	f.failStore = func(call int) error {
		if call == 2 { // so block 3 is not there when request 5 asks for it
			return refusedFor("full")
		}
		return nil
	}
	r, err := Run(t.Context(), o, f)
	require.NoError(t, err)
	assert.Equal(t, Report{
		Trace: "t.jsonl", Connections: 1, BlockSize: 512, Requests: 5, Blocks: 10, HitBlocks: 3, HitTokens: 1536, Refused: 2,
	}, counters(r))
	require.Len(t, *problems, 2)
	assert.EqualError(t, (*problems)[0], "t.jsonl:2: lookup of request 2 on connection 0: refused: not now")
	assert.EqualError(t, (*problems)[1], "t.jsonl:2: store of request 2 on connection 0: refused: full")
}

func TestReplayConnectionLost(t *testing.T) {
	lost := errors.New("cut")
	tests := map[string]struct {
		spoil    func(*fake)
		requests int64 // counted
		want     string
	}{
		"at a lookup": {func(f *fake) {
			f.answer = func(call int, right uint32) (uint32, error) {
				if call == 3 {
					return 0, lost
				}
				return right, nil
			}
		}, 2, "t.jsonl:3: lookup of request 3 on connection 0: cut"},
		"at a store": {func(f *fake) {
			f.failStore = func(call int) error {
				if call == 3 {
					return lost
				}
				return nil
			}
		}, 3, "t.jsonl:3: store of request 3 on connection 0: cut"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			o := options(traceOf(t, small))
			problems := collect(&o)
			f := newFake(t)
			tt.spoil(f)
			r, err := Run(t.Context(), o, f)
			require.ErrorIs(t, err, lost)
			require.EqualError(t, err, tt.want)
			assert.Empty(t, *problems, "it is returned, not told")
			assert.Equal(t, tt.requests, r.Requests)
			assert.Zero(t, r.Refused, "it is lost, not refused")
			assert.True(t, r.Partial)
			assert.Equal(t, 3, f.lookups, "stops")
		})
	}
}

// The first connection to fail ends the others, whose calls are cut short and
// not counted as errors.
func TestReplayOneOfThreeLost(t *testing.T) {
	lost := errors.New("cut")
	index := newFake(t).index
	var targets []Target
	for i := range 3 {
		f := &hanging{fake: &fake{t: t, index: index}}
		if i == 1 {
			f.failStore = func(int) error { return lost }
		} else {
			f.after = 2
		}
		targets = append(targets, f)
	}
	r, err := Run(t.Context(), options(traceOf(t, small)), targets...)
	require.ErrorIs(t, err, lost)
	assert.Zero(t, r.Refused, "it is lost, not refused")
	assert.True(t, r.Partial)
}

// hanging does not answer lookups past the first after ones, if after is set.
type hanging struct {
	*fake
	after int
	hung  func() // if set, called before hanging
}

func (h *hanging) Lookup(ctx context.Context, numTokens uint32, hashes []byte, length int) (uint32, error) {
	if h.after > 0 && h.lookups == h.after {
		if h.hung != nil {
			h.hung()
		}
		<-ctx.Done()
		return 0, fmt.Errorf("lookup: connection lost: %w", ctx.Err())
	}
	return h.fake.Lookup(ctx, numTokens, hashes, length)
}

func TestReplayInterrupted(t *testing.T) {
	stopped := errors.New("stopped by hand")
	ctx, stop := context.WithCancelCause(t.Context())
	defer stop(nil)
	o := options(traceOf(t, small))
	problems := collect(&o)
	r, err := Run(ctx, o, &hanging{fake: newFake(t), after: 2, hung: func() { stop(stopped) }})
	require.ErrorIs(t, err, stopped)
	assert.Empty(t, *problems)
	assert.Equal(t, Report{
		Trace: "t.jsonl", Connections: 1, BlockSize: 512, Requests: 2, Blocks: 5, HitBlocks: 2, HitTokens: 1024, Partial: true,
	}, counters(r))
}

func TestReplayInterruptedBetweenRequests(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	o := options(traceOf(t, small))
	o.OnRequest = func(time.Duration) { stop() }
	r, err := Run(ctx, o, newFake(t))
	require.ErrorIs(t, err, context.Canceled)
	assert.EqualValues(t, 1, r.Requests)
	assert.Zero(t, r.Refused)
}

// What is wrong in the trace does not count after the interruption.
func TestReplayInterruptedReading(t *testing.T) {
	stopped := errors.New("stopped by hand")
	ctx, stop := context.WithCancelCause(t.Context())
	o := options(traceOf(t, "{\"hash_ids\":[1]}\nrubbish"))
	o.OnRequest = func(time.Duration) { stop(stopped) }
	for range 2 { // at the second line, and at the first
		_, err := Run(ctx, o, newFake(t))
		require.ErrorIs(t, err, stopped)
		require.NotErrorIs(t, err, workload.ErrTrace)
		o.Trace = "missing.jsonl"
	}
}

func TestReplayTimeout(t *testing.T) {
	o := options(traceOf(t, small))
	o.Timeout = time.Millisecond
	r, err := Run(t.Context(), o, &hanging{fake: newFake(t), after: 1})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	assert.Contains(t, err.Error(), "t.jsonl:2: lookup of request 2 on connection 0: no answer within 1ms: ")
	assert.Zero(t, r.Refused, "it is lost, not refused")
	assert.EqualValues(t, 1, r.Requests)

	f := newFake(t)
	f.failStore = func(int) error { return fmt.Errorf("read: %w", os.ErrDeadlineExceeded) }
	_, err = Run(t.Context(), o, f)
	require.ErrorContains(t, err, "t.jsonl:1: store of request 1 on connection 0: no answer within 1ms: read: ")
}

func TestReplayBadTrace(t *testing.T) {
	o := options(traceOf(t, "{\"hash_ids\":[1]}\n{\"hash_ids\":[-1]}\n"))
	n, err := o.CountRequests(t.Context())
	require.ErrorIs(t, err, workload.ErrTrace)
	assert.Equal(t, 1, n)
	r, err := Run(t.Context(), o, newFake(t))
	require.EqualError(t, err, "bad trace: t.jsonl:2: hash_ids[0] is -1; ids are integers from 0 to 2^64-1")
	assert.EqualValues(t, 1, r.Requests)
	assert.True(t, r.Partial)
}

func TestReplayTooManyHashes(t *testing.T) {
	line := `{"hash_ids":[1`
	for range 4095 {
		line += ",1"
	}
	o := options(traceOf(t, line+"]}"))
	o.BlockSize = 1 // 4,096 ids of 512 hashes are just allowed
	_, err := o.CountRequests(t.Context())
	require.NoError(t, err)

	o.Trace = traceOf(t, line+",1]}")
	_, err = o.CountRequests(t.Context())
	require.ErrorIs(t, err, workload.ErrTrace)
	require.ErrorContains(t, err, "t.jsonl:1: 2097664 hash blocks; a lookup carries at most 2097152")
}

func TestOptions(t *testing.T) {
	tests := map[string]struct {
		change func(*Options)
		want   string
	}{
		"good":             {func(o *Options) {}, ""},
		"small hashes":     {func(o *Options) { o.BlockSize = 1 }, ""},
		"no tokens":        {func(o *Options) { o.BlockSize = 0 }, "a block size of 0 tokens; it must divide 512"},
		"negative tokens":  {func(o *Options) { o.BlockSize = -16 }, "a block size of -16 tokens; it must divide 512"},
		"uneven tokens":    {func(o *Options) { o.BlockSize = 48 }, "a block size of 48 tokens; it must divide 512"},
		"too many tokens":  {func(o *Options) { o.BlockSize = 1024 }, "a block size of 1024 tokens; it must divide 512"},
		"negative limit":   {func(o *Options) { o.Requests = -1 }, "-1 requests; give 0 for all of them"},
		"no timeout":       {func(o *Options) { o.Timeout = 0 }, "a timeout of 0s; it must be positive"},
		"negative timeout": {func(o *Options) { o.Timeout = -time.Second }, "a timeout of -1s; it must be positive"},
		"a speed":          {func(o *Options) { o.Speed = 99.5 }, ""},
		"negative speed":   {func(o *Options) { o.Speed = -1 }, "a speed of -1; give 1 for the trace's own, 0 for flat out"},
		"endless speed":    {func(o *Options) { o.Speed = math.Inf(1) }, "a speed of +Inf; give 1 for the trace's own, 0 for flat out"},
		"no speed":         {func(o *Options) { o.Speed = math.NaN() }, "a speed of NaN; give 1 for the trace's own, 0 for flat out"},
		"no trace":         {func(o *Options) { o.Trace = "" }, "no trace"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			o := options(traceOf(t, timed))
			tt.change(&o)
			_, countErr := o.CountRequests(t.Context())
			_, err := Run(t.Context(), o, newFake(t))
			assert.Equal(t, countErr, err)
			if tt.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, measure.ErrOptions)
			assert.EqualError(t, err, "bad options: "+tt.want)
		})
	}
	_, err := Run(t.Context(), options(traceOf(t, small)))
	assert.EqualError(t, err, "bad options: no connections")
}

// Neither storing nor what happens between requests counts as time of a lookup.
func TestReplayLatencyIsOfLookupsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const wait = 20 * time.Millisecond
		o := options(traceOf(t, small))
		o.OnRequest = func(time.Duration) { time.Sleep(wait) } // stands for all that happens between lookups
		f := newFake(t)
		f.failStore = func(int) error { time.Sleep(wait); return nil }
		r, err := Run(t.Context(), o, f)
		require.NoError(t, err)
		assert.Zero(t, r.MaxUs)

		f.answer = func(_ int, right uint32) (uint32, error) { time.Sleep(wait); return right, nil }
		o.AllowEvicted = true
		r, err = Run(t.Context(), o, f)
		require.NoError(t, err)
		assert.InEpsilon(t, float64(wait.Microseconds()), r.P50us, 0.01)
		assert.InEpsilon(t, float64(wait.Microseconds()), r.MaxUs, 0.01)
	})
}

// OnProblem keeps no lock of its own, so calls of three connections must not overlap.
func TestReplayTellsOneProblemAtATime(t *testing.T) {
	o := options(traceOf(t, small))
	var inside atomic.Int32
	problems := 0
	o.OnProblem = func(error) {
		assert.EqualValues(t, 1, inside.Add(1))
		problems++
		time.Sleep(time.Millisecond) // lets the others run into it
		inside.Add(-1)
	}
	var targets []Target
	for range 3 {
		f := newFake(t)
		f.answer = func(_ int, right uint32) (uint32, error) { return right + 512, nil }
		targets = append(targets, f)
	}
	r, err := Run(t.Context(), o, targets...)
	require.NoError(t, err)
	assert.EqualValues(t, 15, r.Wrong)
	assert.Equal(t, 15, problems)
}

// quiet is a target that does nothing, so that what is measured is the replay.
type quiet struct{}

func (quiet) Lookup(context.Context, uint32, []byte, int) (uint32, error) { return 0, nil }
func (quiet) Store(context.Context, []byte, int) error                    { return nil }

// A request of many ids must cost no more allocations than one of few, once the
// buffers have grown.
func TestPlayAllocates(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	o := options("")
	o.BlockSize, o.AllowEvicted = 16, true
	perRequest := func(n int) float64 {
		p := newPlayer(0, quiet{}, o, time.Now(), newTimeline(time.Hour, o.BlockSize))
		ids := make([]uint64, n)
		return testing.AllocsPerRun(20, func() {
			if err := p.play(context.Background(), workload.Request{Number: 1, IDs: ids}); err != nil {
				t.Error(err)
			}
		})
	}
	assert.Equal(t, perRequest(1), perRequest(1000))
}
