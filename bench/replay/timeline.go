package replay

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/hitline/hitline/bench/measure"
)

// Window is what happened in one stretch of a replay. Its percentiles are exact to
// 1 %, and 0 without an answer.
type Window struct {
	StartS    float64 `json:"start_s"` // seconds, see [Report.Windows]
	Requests  int64   `json:"requests"`
	Blocks    int64   `json:"blocks"`     // hash blocks in those requests
	HitBlocks int64   `json:"hit_blocks"` // whole ones in the sum of the answers
	HitRatio  float64 `json:"hit_ratio"`  // HitBlocks / Blocks, 0 without blocks
	P50us     float64 `json:"p50_us"`     // microseconds a lookup took
	P99us     float64 `json:"p99_us"`
}

const (
	// maxWindows bounds the number of windows. A window takes 40 KB.
	maxWindows = 100
	// tableWindows bounds the windows of a table, for a screen.
	tableWindows = 12
)

// sample is what a timeline is told of one lookup.
type sample struct {
	at       time.Duration // since the replay's first request
	blocks   int64
	answered bool  // and not refused, else what follows means nothing
	tokens   int64 // of the answer
	took     time.Duration
}

// timeline counts by windows of equal length. It need not know how long the replay
// will be: when there are too many windows it joins them, some neighbours into one.
// Safe for concurrent use.
type timeline struct {
	tokens int64 // a hash block

	mu      sync.Mutex // guards what follows
	length  time.Duration
	joined  int // how often windows have been joined
	windows []*tally
}

// tally counts one window.
type tally struct {
	requests, blocks, tokens int64
	latency                  *hdrhistogram.Histogram // nanoseconds
}

// newTimeline returns a timeline of windows that at first have the given length, for blocks of
// so many tokens.
func newTimeline(length time.Duration, blockSize int) *timeline {
	return &timeline{tokens: int64(blockSize), length: length}
}

// add counts a lookup.
func (t *timeline) add(s sample) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for s.at/t.length >= maxWindows {
		t.grow()
	}
	at := int(s.at / t.length)
	for len(t.windows) <= at {
		t.windows = append(t.windows, nil)
	}
	if t.windows[at] == nil {
		t.windows[at] = &tally{latency: hdrhistogram.New(1, maxLatency, 2)}
	}
	w := t.windows[at]
	w.requests++
	w.blocks += s.blocks
	if s.answered {
		w.tokens += s.tokens
		record(w.latency, s.took)
	}
}

// grow makes longer windows: of 1, 2, 10, 20, 100 … milliseconds, which are easy
// to read. The caller holds mu.
func (t *timeline) grow() {
	by := 2
	if t.joined%2 == 1 {
		by = 5
	}
	t.joined++
	t.length *= time.Duration(by)
	t.windows = join(t.windows, by)
}

// join returns windows of by neighbours each, built in the first of them.
func join(windows []*tally, by int) []*tally {
	var joined []*tally
	for neighbours := range slices.Chunk(windows, by) {
		var first *tally
		for _, w := range neighbours {
			if first == nil || w == nil {
				first = cmp.Or(first, w)
				continue
			}
			first.requests += w.requests
			first.blocks += w.blocks
			first.tokens += w.tokens
			first.latency.Merge(w.latency)
		}
		joined = append(joined, first)
	}
	return joined
}

// record counts how long a lookup took.
func record(h *hdrhistogram.Histogram, took time.Duration) {
	// Within bounds, RecordValue cannot fail.
	_ = h.RecordValue(min(max(int64(took), 1), maxLatency))
}

// addWindows fills in the windows of a replay that has ended, and with it ends the
// timeline: for the table, windows are joined to be few.
func (r *Report) addWindows(t *timeline) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r.IntervalS = seconds(t.length)
	r.Windows = t.list(t.windows, t.length)
	by := max(1, (len(t.windows)+tableWindows-1)/tableWindows)
	r.rows = t.list(join(t.windows, by), t.length*time.Duration(by))
}

// list returns the windows that have requests.
func (t *timeline) list(windows []*tally, length time.Duration) []Window {
	all := []Window{} // not null in JSON
	for i, w := range windows {
		if w == nil {
			continue
		}
		hits := w.tokens / t.tokens
		all = append(all, Window{
			StartS:   seconds(time.Duration(i) * length),
			Requests: w.requests, Blocks: w.blocks, HitBlocks: hits, HitRatio: share(hits, w.blocks),
			P50us: measure.OfHistogramUs(w.latency, 50), P99us: measure.OfHistogramUs(w.latency, 99),
		})
	}
	return all
}
