package replay

import (
	"cmp"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Two minutes at five times the speed: windows are of trace time, and a lookup
// counts where it was due, though it is sent later.
func TestReplayWindows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlow(t, func(call int) time.Duration {
			if call == 2 {
				return 5 * time.Second // 25 s of the trace
			}
			return time.Millisecond
		})
		r := replayed(t, lines(t, 7000, 8000, 9000, 30000, 127000), func(o *Options) {
			o.Speed, o.window = 5, 10*time.Second
		}, s)
		assert.Equal(t, 10.0, r.IntervalS)
		require.Len(t, r.Windows, 3, "those without requests are left out")
		first := r.Windows[0]
		assert.InEpsilon(t, 4.801e6, first.P50us, 0.01)
		assert.InEpsilon(t, 5e6, first.P99us, 0.01)
		first.P50us, first.P99us = 0, 0
		assert.Equal(t, Window{StartS: 0, Requests: 3, Blocks: 3, HitBlocks: 1, HitRatio: 0.333333}, first)
		assert.Equal(t, 20.0, r.Windows[1].StartS)
		assert.InEpsilon(t, 602e3, r.Windows[1].P50us, 0.01)
		assert.Equal(t, 120.0, r.Windows[2].StartS)
		assert.EqualValues(t, 1, r.Windows[2].HitBlocks)
	})
}

// Flat out, windows are of the clock, and a lookup counts where it was sent.
func TestReplayWindowsFlatOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlow(t, func(int) time.Duration { return 4 * time.Second })
		r := replayed(t, lines(t, 1, 1, 1, 1), func(o *Options) { o.window = 5 * time.Second }, s)
		var got []string
		for _, v := range r.Windows {
			got = append(got, fmt.Sprint(v.StartS, v.Requests, v.HitBlocks))
		}
		assert.Equal(t, []string{"0 2 0", "5 1 1", "10 1 1"}, got)
	})
}

// A refused lookup is a request without an answer.
func TestReplayWindowsRefused(t *testing.T) {
	f := newFake(t)
	f.answer = func(int, uint32) (uint32, error) { return 512, refusedFor("not now") }
	r := replayed(t, traceOf(t, "{\"hash_ids\":[1,2]}"), func(o *Options) { o.window = time.Hour }, f)
	assert.Equal(t, []Window{{Requests: 1, Blocks: 2}}, r.Windows)
	assert.Zero(t, r.MaxUs)
}

// Whatever the windows are, nothing is lost or counted twice.
func TestReplayWindowsAddUp(t *testing.T) {
	for _, interval := range []time.Duration{0, time.Nanosecond, time.Millisecond, 7 * time.Second, 1 << 62} {
		synctest.Test(t, func(t *testing.T) {
			index := newFake(t).index
			r := replayed(t, excerptTrace, func(o *Options) {
				o.Speed, o.window = 1000, interval
			}, &fake{t: t, index: index}, &fake{t: t, index: index})
			for _, list := range [][]Window{r.Windows, r.rows} {
				var sum Window
				for i, v := range list {
					sum.Requests += v.Requests
					sum.Blocks += v.Blocks
					sum.HitBlocks += v.HitBlocks
					assert.Equal(t, share(v.HitBlocks, v.Blocks), v.HitRatio)
					assert.True(t, i == 0 || list[i-1].StartS < v.StartS, "in order")
				}
				assert.Equal(t, Window{Requests: 2 * excerptRequests, Blocks: 2 * excerptBlocks, HitBlocks: 2 * excerptHitBlocks}, sum)
			}
			assert.LessOrEqual(t, len(r.rows), tableWindows)
		})
	}
}

func TestTimelineLength(t *testing.T) {
	tests := map[string]struct {
		asked, last, length time.Duration
		windows             int // of one lookup every 500 us, the last one at last
	}{
		"short":         {0, 99 * time.Millisecond, time.Millisecond, 100},
		"joined once":   {0, 100 * time.Millisecond, 2 * time.Millisecond, 51},
		"joined twice":  {0, 200 * time.Millisecond, 10 * time.Millisecond, 21},
		"thrice":        {0, time.Second, 20 * time.Millisecond, 51},
		"longer by far": {time.Hour, time.Second, time.Hour, 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			line := newTimeline(cmp.Or(tt.asked, time.Millisecond), 512)
			n := int64(0)
			for at := time.Duration(0); at <= tt.last; at += 500 * time.Microsecond {
				n++
				line.add(sample{at: at, blocks: 2, tokens: 512, answered: true, took: time.Microsecond})
			}
			line.add(sample{at: 0}) // one that comes late finds its window
			var r Report
			r.addWindows(line)
			assert.Equal(t, tt.length.Seconds(), r.IntervalS)
			assert.Len(t, r.Windows, tt.windows)
			total := int64(0)
			for i, v := range r.Windows {
				total += v.Requests
				assert.InDelta(t, float64(i)*tt.length.Seconds(), v.StartS, 1e-9)
				assert.Equal(t, 1.0, v.P99us)
			}
			assert.Equal(t, n+1, total)
			assert.LessOrEqual(t, len(r.rows), tableWindows)
		})
	}
}

// Windows of the table have the percentiles of all lookups in them, to 1 %.
func TestTimelineRows(t *testing.T) {
	line := newTimeline(time.Second, 512)
	for i := range 24 {
		line.add(sample{at: time.Duration(i) * time.Second, answered: true, took: time.Duration(i+1) * time.Microsecond})
	}
	var r Report
	r.addWindows(line)
	require.Len(t, r.Windows, 24)
	require.Len(t, r.rows, 12)
	assert.Equal(t, Window{StartS: 2, Requests: 2, P50us: 3.01, P99us: 4.02}, r.rows[1])
	assert.Equal(t, Window{StartS: 3, Requests: 1, P50us: 4.02, P99us: 4.02}, r.Windows[3])
}
