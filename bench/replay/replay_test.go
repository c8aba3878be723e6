package replay

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/workload"
)

const excerpt = "../testdata/conversation_excerpt.jsonl"

// What an unbounded index answers to the excerpt was counted by another program.
func TestReplayExcerpt(t *testing.T) {
	for tokens, want := range map[int]Report{
		512: {Requests: 799, Blocks: 21951, HitBlocks: 4144},
		16:  {Requests: 100, Blocks: 3034 * 32, HitBlocks: 99 * 32},
	} {
		o := options(t, excerpt)
		o.BlockSize, o.Requests = tokens, int(want.Requests)
		told := 0
		o.OnRequest = func() { told++ }
		r, err := Run(t.Context(), o, newFake(t))
		require.NoError(t, err)
		assert.EqualValues(t, want.Requests, told)
		want.Trace, want.BlockSize, want.HitTokens = excerpt, tokens, want.HitBlocks*int64(tokens)
		assert.Equal(t, want, counters(r))
		assert.InDelta(t, float64(r.HitBlocks)/float64(r.Blocks), r.HitRatio, 1e-6)
		assert.Positive(t, r.P50us)
		assert.GreaterOrEqual(t, r.MaxUs, r.P999us)
	}
}

func TestReplayLimit(t *testing.T) {
	for limit, want := range map[int]int64{0: 5, 1: 1, 5: 5, 6: 5} {
		o := options(t, traceOf(t, small))
		o.Requests = limit
		count, err := o.CountRequests(t.Context())
		require.NoError(t, err)
		assert.EqualValues(t, want, count, "limit %d", limit)
		r, err := Run(t.Context(), o, newFake(t))
		require.NoError(t, err)
		assert.Equal(t, want, r.Requests, "limit %d", limit)
	}
	o := options(t, traceOf(t, "{\"hash_ids\":[1]}\nrubbish"))
	o.Requests = 1
	_, err := Run(t.Context(), o, newFake(t))
	require.NoError(t, err, "what lies past the limit is not read")
}

func TestReplayLies(t *testing.T) {
	const above = "above what was stored; was the index empty at the start?"
	const below = "below what was stored; if the index is bounded, give --allow-evicted"
	downward := func(call int, right uint32) (uint32, error) { return max(right, 512) - 512, nil }
	tests := map[string]struct {
		bounded bool
		answer  func(call int, right uint32) (uint32, error)
		want    []WrongError // without the trace
	}{
		"upward by a block": {false, func(_ int, right uint32) (uint32, error) { return right + 512, nil },
			[]WrongError{{"", 1, 0, 512, above}, {"", 2, 1024, 1536, above}, {"", 3, 512, 1024, above}, {"", 4, 0, 512, above}, {"", 5, 1536, 2048, above}}},
		"upward by a token, bounded": {true, func(call int, right uint32) (uint32, error) { return right + uint32(call/5), nil },
			[]WrongError{{"", 5, 1536, 1537, above}}},
		"downward by a block": {false, downward,
			[]WrongError{{"", 2, 1024, 512, below}, {"", 3, 512, 0, below}, {"", 5, 1536, 1024, below}}},
		"downward by a block, bounded": {true, downward, nil},
		"downward by a token, bounded": {true, func(call int, right uint32) (uint32, error) { return right - uint32(call/5), nil },
			[]WrongError{{"", 5, 1536, 1535, "no multiple of 512"}}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			o := options(t, traceOf(t, small))
			o.AllowEvicted = tt.bounded
			problems := collect(&o)
			f := newFake(t)
			f.answer = tt.answer
			r, err := Run(t.Context(), o, f)
			require.NoError(t, err)
			assert.EqualValues(t, 5, r.Requests, "goes on after a mismatch")
			assert.EqualValues(t, len(tt.want), r.Wrong)
			require.Len(t, *problems, len(tt.want))
			for i, want := range tt.want {
				want.Trace = "t.jsonl"
				assert.Equal(t, &want, (*problems)[i])
			}
		})
	}
	err := &WrongError{Trace: "t.jsonl", Request: 7, Expected: 512, Got: 1024, Reason: "above"}
	assert.Equal(t, "t.jsonl:7: expected 512 hit tokens, got 1024: above", err.Error())
}

// With hash blocks of 16 tokens, part of an id can be gone.
func TestReplayPartOfAnID(t *testing.T) {
	o := options(t, traceOf(t, "{\"hash_ids\":[1]}\n{\"hash_ids\":[1]}\n"))
	o.BlockSize, o.AllowEvicted = 16, true
	f := newFake(t)
	f.answer = func(_ int, right uint32) (uint32, error) { return right * 15 / 32, nil }
	r, err := Run(t.Context(), o, f)
	require.NoError(t, err)
	assert.EqualValues(t, 240, r.HitTokens)
	assert.EqualValues(t, 15, r.HitBlocks)
}

func TestReplayRefusals(t *testing.T) {
	o := options(t, traceOf(t, small))
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
	assert.Equal(t, Report{Trace: "t.jsonl", BlockSize: 512, Requests: 5, Blocks: 10, HitBlocks: 3, HitTokens: 1536, Refused: 2}, counters(r))
	require.Len(t, *problems, 2)
	assert.EqualError(t, (*problems)[0], "t.jsonl:2: lookup: refused: not now")
	assert.EqualError(t, (*problems)[1], "t.jsonl:2: store: refused: full")
}

func TestReplayConnectionLost(t *testing.T) {
	lost := errors.New("cut")
	for name, tt := range map[string]struct {
		fail     error
		atStore  bool
		requests int64 // counted
		want     string
	}{
		"at a lookup":         {lost, false, 2, "t.jsonl:3: lookup: cut"},
		"at a store":          {lost, true, 3, "t.jsonl:3: store: cut"},
		"a lookup too late":   {fmt.Errorf("read: %w", context.DeadlineExceeded), false, 2, "t.jsonl:3: lookup: no answer within 1m0s: read: "},
		"a store by a socket": {fmt.Errorf("read: %w", os.ErrDeadlineExceeded), true, 3, "t.jsonl:3: store: no answer within 1m0s: read: "},
	} {
		t.Run(name, func(t *testing.T) {
			o := options(t, traceOf(t, small))
			f := newFake(t)
			fail := func(call int) error {
				if call == 3 {
					return tt.fail
				}
				return nil
			}
			f.answer = func(call int, right uint32) (uint32, error) { return right, fail(call) }
			if tt.atStore {
				f.answer, f.failStore = nil, fail
			}
			r, err := Run(t.Context(), o, f)
			require.ErrorIs(t, err, tt.fail)
			require.ErrorContains(t, err, tt.want)
			assert.Equal(t, tt.requests, r.Requests)
			assert.Zero(t, r.Refused, "it is lost, not refused")
			assert.True(t, r.Partial)
			assert.Equal(t, 3, f.lookups, "stops")
		})
	}
}

func TestReplayInterrupted(t *testing.T) {
	stopped := errors.New("stopped by hand")
	ctx, stop := context.WithCancelCause(t.Context())
	f := newFake(t)
	f.answer = func(call int, right uint32) (uint32, error) {
		if call == 3 {
			stop(stopped)
			return 0, errors.New("lookup: connection lost")
		}
		return right, nil
	}
	r, err := Run(ctx, options(t, traceOf(t, small)), f)
	require.ErrorIs(t, err, stopped)
	assert.Equal(t, Report{Trace: "t.jsonl", BlockSize: 512, Requests: 2, Blocks: 5, HitBlocks: 2, HitTokens: 1024, Partial: true}, counters(r))
}

// What is wrong in the trace does not count after the interruption.
func TestReplayInterruptedReading(t *testing.T) {
	stopped := errors.New("stopped by hand")
	ctx, stop := context.WithCancelCause(t.Context())
	o := options(t, traceOf(t, "{\"hash_ids\":[1]}\nrubbish"))
	o.OnRequest = func() { stop(stopped) }
	for range 2 { // at the second line, and at the first
		_, err := Run(ctx, o, newFake(t))
		require.ErrorIs(t, err, stopped)
		require.NotErrorIs(t, err, workload.ErrTrace)
		o.Trace = "missing.jsonl"
	}
}

func TestReplayBadTrace(t *testing.T) {
	o := options(t, traceOf(t, "{\"hash_ids\":[1]}\n{\"hash_ids\":[-1]}\n"))
	n, err := o.CountRequests(t.Context())
	require.ErrorIs(t, err, workload.ErrTrace)
	assert.Equal(t, 1, n)
	r, err := Run(t.Context(), o, newFake(t))
	require.ErrorContains(t, err, "bad trace: t.jsonl:2: hash_ids has a JSON number -1")
	assert.EqualValues(t, 1, r.Requests)
	assert.True(t, r.Partial)

	o = options(t, traceOf(t, `{"hash_ids":[1`+strings.Repeat(",1", 4096)+"]}"))
	o.BlockSize = 1
	_, err = o.CountRequests(t.Context())
	require.ErrorContains(t, err, "t.jsonl:1: 2097664 hash blocks; a lookup carries at most 2097152")
}

func TestReportTable(t *testing.T) {
	r := Report{
		Trace: "conversation_trace.jsonl", BlockSize: 512, Requests: 12031, Blocks: 288500, HitBlocks: 105710, HitTokens: 54123520, Wrong: 1, Refused: 2,
		HitRatio: 0.366412, Seconds: 3.25, RequestsPerS: 3701.8, Latency: measure.Latency{P50us: 41.2, P90us: 80, P99us: 120, P999us: 250.5, MaxUs: 1000},
	}
	table := func() string {
		var out strings.Builder
		require.NoError(t, r.WriteTable(&out))
		_, rest, _ := strings.Cut(out.String(), "\n")
		return rest
	}
	assert.Equal(t, `trace        conversation_trace.jsonl
block size   512 tokens
requests     12,031, 3702 a second
blocks       288,500
hit blocks   105,710, 36.6 %
hit tokens   54,123,520
wrong        1
refused      2
time         3.250 s
lookup       p50 41.2 us, p90 80.0, p99 120.0, p99.9 250.5, at most 1000.0
`, table())
	r.Partial = true
	assert.Contains(t, table(), "_trace.jsonl (in part)\n")
}
