package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fakes returns n connections to one index.
func fakes(t *testing.T, n int) ([]*fake, []Target) {
	index := newFake(t).index
	var all []*fake
	var targets []Target
	for range n {
		f := &fake{t: t, index: index}
		all, targets = append(all, f), append(targets, f)
	}
	return all, targets
}

// Any number of connections that split a trace get the answers that one gets, and
// each of them does a fair part. In the excerpt, all requests begin with id 0.
func TestSplitTotals(t *testing.T) {
	for name, trace := range splitTraces() {
		whole := replayed(t, trace, nil)
		for _, conns := range []int{1, 2, 5} {
			for _, speed := range []float64{0, 1e6} {
				if speed > 0 && conns != 2 {
					continue
				}
				t.Run(fmt.Sprintf("%s/conns=%d/speed=%v", name, conns, speed), func(t *testing.T) {
					all, targets := fakes(t, conns)
					o := options(trace)
					o.Split, o.Speed = true, speed
					problems := collect(&o)
					r, err := Run(t.Context(), o, targets...)
					require.NoError(t, err)
					assert.Empty(t, *problems)
					want := counters(whole)
					want.Connections, want.Split, want.Speed = conns, true, speed
					assert.Equal(t, want, counters(r))
					require.Len(t, r.ConnectionRequests, conns)
					for i, f := range all {
						assert.EqualValues(t, f.lookups, r.ConnectionRequests[i])
						assert.Greater(t, f.lookups, int(whole.Requests)/conns/3, "connection %d", i)
					}
				})
			}
		}
	}
}

// Requests that share more than the opening stay together and in order.
func TestSplitRoutes(t *testing.T) {
	s := newSplit(Options{}, make([]*player, 3), []uint64{1})
	for i, tt := range []struct {
		ids  []uint64
		want int
	}{
		{[]uint64{1, 2, 3, 4, 5}, 0}, // load 6, 0, 0
		{[]uint64{1, 3}, 1},          // 6, 3, 0
		{[]uint64{1, 2}, 0},          // 9, 3, 0
		{[]uint64{1, 3, 2, 2, 2}, 1}, // 9, 9, 0
		{[]uint64{1}, 2},             // 9, 9, 2
		{nil, 2},                     // 9, 9, 3
		{[]uint64{1, 4, 1, 1, 1, 1, 1, 1, 1, 1}, 2},
		{[]uint64{1}, 0}, // 11, 9, 14
		{[]uint64{1, 5}, 1},
		{[]uint64{1, 4}, 2},
		{[]uint64{1, 2, 9}, 0},
	} {
		assert.Equal(t, tt.want, s.route(tt.ids), "request %d", i+1)
	}
}

func TestOpening(t *testing.T) {
	for text, want := range map[string][]uint64{
		"[]":                nil,
		"[1,2]":             {1, 2},
		"[1,2] [] [1,2,3]":  {1, 2},
		"[1,2,3] [1,2] []":  {1, 2},
		"[1,2,3] [1,4,3]":   {1},
		"[1,2] [2,2]":       {},
		"[1,2] [1,2] [2] ?": {}, // past the limit
	} {
		items := strings.Fields(text)
		for i, item := range items {
			items[i] = `{"hash_ids":` + item + "}\n"
		}
		o := options(traceOf(strings.Join(items, "")))
		o.Split, o.Requests = true, 3
		got, err := o.opening(t.Context())
		require.NoError(t, err)
		assert.Equal(t, want, got, text)
	}
}

// One of the connections lies; that is seen, and put down to it.
func TestSplitLies(t *testing.T) {
	for name, lie := range map[string]func(right uint32) uint32{
		"upward":   func(right uint32) uint32 { return right + 512 },
		"downward": func(right uint32) uint32 { return right - min(right, 512) },
	} {
		t.Run(name, func(t *testing.T) {
			all, targets := fakes(t, 3)
			lies := 0
			all[1].answer = func(_ int, right uint32) (uint32, error) {
				if lie(right) != right {
					lies++
				}
				return lie(right), nil
			}
			o := options(excerptTrace)
			o.Split = true
			problems := collect(&o)
			r, err := Run(t.Context(), o, targets...)
			require.NoError(t, err)
			assert.Greater(t, lies, 100)
			assert.EqualValues(t, lies, r.Wrong)
			for _, problem := range *problems {
				wrong, ok := errors.AsType[*WrongError](problem)
				require.True(t, ok)
				assert.Equal(t, 1, wrong.Connection)
				assert.Equal(t, lie(wrong.Expected), wrong.Got)
			}
		})
	}
}

// The index was not empty: the trace had been replayed before. Every partition
// notices.
func TestSplitTwice(t *testing.T) {
	_, targets := fakes(t, 3)
	split := func(o *Options) { o.Split = true }
	assert.Zero(t, replayed(t, excerptTrace, split, targets...).Wrong)
	conns := map[int]bool{}
	replayed(t, excerptTrace, func(o *Options) {
		o.Split = true
		o.OnProblem = func(err error) {
			wrong, ok := errors.AsType[*WrongError](err)
			assert.True(t, ok)
			conns[wrong.Connection] = true
		}
	}, targets...)
	assert.Len(t, conns, 3)
}

// While the stores of the opening are refused, there is one request at a time: it
// is known of none whether it holds the opening until it has been stored.
func TestSplitOpeningRefused(t *testing.T) {
	gate := &gate{}
	all, _ := fakes(t, 3)
	var targets []Target
	for _, f := range all {
		f.failStore = func(int) error {
			if gate.total() <= 3 {
				return refusedFor("full")
			}
			return nil
		}
		targets = append(targets, gated{f, gate})
	}
	r := replayed(t, excerptTrace, func(o *Options) { o.Split = true }, targets...)
	assert.Zero(t, r.Wrong)
	assert.EqualValues(t, 3, r.Refused)
	assert.EqualValues(t, excerptRequests, r.Requests)
	assert.False(t, gate.early, "two requests at once")
}

// gate notes whether lookups overlap among the first four.
type gate struct {
	mu            sync.Mutex
	lookups, busy int
	early         bool
}

func (g *gate) total() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.lookups
}

type gated struct {
	*fake
	gate *gate
}

func (g gated) Lookup(ctx context.Context, numTokens uint32, hashes []byte, length int) (uint32, error) {
	g.gate.mu.Lock()
	g.gate.lookups++
	g.gate.busy++
	g.gate.early = g.gate.early || g.gate.busy > 1 && g.gate.lookups <= 4
	g.gate.mu.Unlock()
	return g.fake.Lookup(ctx, numTokens, hashes, length)
}

func (g gated) Store(ctx context.Context, keys []byte, length int) error {
	defer func() {
		g.gate.mu.Lock()
		g.gate.busy--
		g.gate.mu.Unlock()
	}()
	return g.fake.Store(ctx, keys, length)
}

// A lost connection ends the others and the reading, however long the trace.
func TestSplitConnectionLost(t *testing.T) {
	lost := errors.New("cut")
	all, targets := fakes(t, 3)
	all[2].failStore = func(call int) error {
		if call == 5 {
			return lost
		}
		return nil
	}
	o := options(trees("1,", 500))
	o.Split = true
	r, err := Run(t.Context(), o, targets...)
	require.ErrorIs(t, err, lost)
	assert.ErrorContains(t, err, " on connection 2: cut")
	assert.Zero(t, r.Refused)
	assert.True(t, r.Partial)
	assert.Equal(t, 5, all[2].lookups)
}

// So it does while the reader waits for room in a full queue, and what is in the
// queue is left.
func TestSplitConnectionLostWhileFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost := errors.New("cut")
		all, _ := fakes(t, 2)
		all[1].failStore = func(call int) error {
			if call < 1+1+queueLength {
				return nil
			}
			time.Sleep(time.Second) // until all the others wait
			return lost
		}
		o := options(byTurns(1000))
		o.Split = true
		_, err := Run(t.Context(), o, &stubborn{all[0]}, all[1])
		require.ErrorIs(t, err, lost)
		assert.Equal(t, 2, all[0].lookups)
	})
}

// stubborn answers its second lookup when it is told to stop, and goes on.
type stubborn struct{ *fake }

func (s *stubborn) Lookup(ctx context.Context, numTokens uint32, hashes []byte, length int) (uint32, error) {
	if s.lookups == 1 {
		<-ctx.Done()
	}
	return s.fake.Lookup(ctx, numTokens, hashes, length)
}

func TestSplitInterrupted(t *testing.T) {
	stopped := errors.New("stopped by hand")
	ctx, stop := context.WithCancelCause(t.Context())
	_, targets := fakes(t, 2)
	hung := &hanging{fake: targets[1].(*fake), after: 3, hung: func() { stop(stopped) }}
	o := options(excerptTrace)
	o.Split = true
	r, err := Run(ctx, o, targets[0], hung)
	require.ErrorIs(t, err, stopped)
	assert.EqualValues(t, 3, r.ConnectionRequests[1])
	assert.Zero(t, r.Refused)
	assert.True(t, r.Partial)
}

// A bad trace is found before anything is stored, for it is read to find the
// opening.
func TestSplitBadTrace(t *testing.T) {
	f := newFake(t)
	o := options(traceOf(small + "?"))
	o.Split = true
	r, err := Run(t.Context(), o, f)
	require.ErrorContains(t, err, "bad trace: t.jsonl:6: not JSON")
	assert.Zero(t, f.lookups)
	assert.Equal(t, Report{Trace: "t.jsonl", Connections: 1, Split: true, BlockSize: 512, Partial: true}, counters(r))
	require.NoError(t, r.WriteHDR(io.Discard), "nothing, but no failure")
}

// What is read ahead of a connection is bounded.
func TestSplitReadsNoFurther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, _ := fakes(t, 2)
		release := make(chan struct{})
		done := make(chan Report, 1)
		go func() {
			done <- replayed(t, byTurns(1000), func(o *Options) { o.Split = true },
				&holding{fake: all[0], release: release}, all[1])
		}()
		synctest.Wait()
		// The first connection made one request, has one in hand and a full queue, and
		// the reader waits with the next. The second had one between any two of those.
		assert.Equal(t, 1, all[0].lookups)
		assert.Equal(t, 1+1+queueLength, all[1].lookups)
		close(release)
		r := <-done
		assert.EqualValues(t, 1000, r.Requests)
		assert.EqualValues(t, 998, r.HitBlocks)
	})
}

// holding does not answer its second lookup until release is closed.
type holding struct {
	*fake
	release <-chan struct{}
}

func (h *holding) Lookup(ctx context.Context, numTokens uint32, hashes []byte, length int) (uint32, error) {
	if h.lookups == 1 {
		<-h.release
	}
	return h.fake.Lookup(ctx, numTokens, hashes, length)
}
