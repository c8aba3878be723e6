package replay

import (
	"fmt"
	"io"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/hitline/hitline/bench/measure"
)

// Report is the result of a replay, summed over its connections. Times of lookups
// are in microseconds, to 0.01, and 0 without an answer; percentiles are those of all
// connections' lookups.
type Report struct {
	Setup       measure.Setup `json:"setup"` // its Seed is 0: nothing is drawn
	Trace       string        `json:"trace"`
	Connections int           `json:"connections"`
	BlockSize   int           `json:"block_size"` // tokens that one hash covers
	Speed       float64       `json:"speed"`      // times that of the trace; 0 for flat out

	Requests  int64   `json:"requests"`   // lookups that were answered or refused
	Blocks    int64   `json:"blocks"`     // in those lookups
	HitBlocks int64   `json:"hit_blocks"` // HitTokens in whole blocks
	HitTokens int64   `json:"hit_tokens"` // sum of the answers, as given, right or wrong
	HitRatio  float64 `json:"hit_ratio"`  // HitBlocks / Blocks, 0 without blocks
	Wrong     int64   `json:"wrong"`      // answers that the model contradicts
	Refused   int64   `json:"refused"`    // lookups and stores

	Seconds         float64 `json:"seconds"`        // from the first request to the last answer
	RequestsPerS    float64 `json:"requests_per_s"` // Requests / Seconds, to 0.1
	BehindMaxMs     float64 `json:"behind_max_ms"`  // the most that a lookup was sent after it was due; 0 flat out
	measure.Latency         // from when a lookup was due, or flat out from when it was sent

	// Windows is the same over time: that of the trace with a speed, when a lookup
	// counts where it was due, and else that since the replay began, when it counts
	// where it was sent. Windows without requests are left out.
	IntervalS float64  `json:"interval_s"` // seconds a window
	Windows   []Window `json:"windows"`

	Partial bool `json:"partial,omitempty"` // the replay ended before the trace did

	rows []Window // Windows in few, for the table
}

// sum adds up what the players counted and timed in a replay that took so long.
func sum(o Options, players []*player, took time.Duration) Report {
	r := Report{Trace: string(o.Trace), Connections: len(players), BlockSize: o.BlockSize, Speed: o.Speed}
	latency, behind := hdrhistogram.New(1, maxLatency, 3), time.Duration(0)
	for _, p := range players {
		t := &p.totals
		r.Requests += t.Requests
		r.Blocks += t.Blocks
		r.HitTokens += t.HitTokens
		r.Wrong += t.Wrong
		r.Refused += t.Refused
		r.HitBlocks += t.HitTokens / int64(o.BlockSize)
		latency.Merge(p.latency)
		behind = max(behind, p.behind)
	}
	r.HitRatio = share(r.HitBlocks, r.Blocks)
	r.Seconds = seconds(took)
	r.RequestsPerS = measure.Round(float64(r.Requests)/max(took.Seconds(), 1e-9), 1)
	r.BehindMaxMs = measure.Round(float64(behind)/1e6, 3)
	r.Latency = measure.LatencyOf(latency)
	return r
}

// WriteTable writes the report for people: lines of name and value, and then what
// happened over time, in few windows.
func (r Report) WriteTable(w io.Writer) error {
	var t measure.Table
	name := r.Trace
	if r.Partial {
		name += " (in part)"
	}
	t.Line("setup", "%v", r.Setup)
	t.Line("trace", "%s", name)
	t.Line("connections", "%s", measure.Grouped(int64(r.Connections)))
	t.Line("block size", "%d tokens", r.BlockSize)
	t.Line("requests", "%s%s", measure.Grouped(r.Requests), over(", %.0f a second", float64(r.Requests), r.Seconds))
	t.Line("blocks", "%s", measure.Grouped(r.Blocks))
	t.Line("hit blocks", "%s%s", measure.Grouped(r.HitBlocks), over(", %.1f %%", 100*float64(r.HitBlocks), float64(r.Blocks)))
	t.Line("hit tokens", "%s", measure.Grouped(r.HitTokens))
	t.Line("wrong", "%s", measure.Grouped(r.Wrong))
	t.Line("refused", "%s", measure.Grouped(r.Refused))
	t.Line("time", "%.3f s", r.Seconds)
	if r.Speed > 0 {
		t.Line("speed", "%vx the trace's", r.Speed)
		t.Line("behind", "%.3f ms at worst; latency counts from when a lookup was due", r.BehindMaxMs)
	}
	t.Line("lookup", "p50 %.1f us, p90 %.1f, p99 %.1f, p99.9 %.1f, at most %.1f", r.P50us, r.P90us, r.P99us, r.P999us, r.MaxUs)
	r.addRows(&t)
	return t.Write(w)
}

// addRows adds what happened over time, unless it is one window.
func (r Report) addRows(t *measure.Table) {
	if len(r.rows) < 2 {
		return
	}
	clock := "time"
	if r.Speed > 0 {
		clock = "trace time"
	}
	t.Text("")
	t.Heads(clock, "requests", "hit blocks", "lookup p50", "lookup p99")
	for _, v := range r.rows {
		t.Row(fmt.Sprintf("%v s", v.StartS), v.Requests, over("%.1f %%", 100*float64(v.HitBlocks), float64(v.Blocks)),
			fmt.Sprintf("%.1f us", v.P50us), fmt.Sprintf("%.1f us", v.P99us))
	}
}

// over formats a/b, or nothing if b is 0.
func over(format string, a, b float64) string {
	if b == 0 {
		return ""
	}
	return fmt.Sprintf(format, a/b)
}

// seconds returns d in seconds, to the microsecond.
func seconds(d time.Duration) float64 { return measure.Round(d.Seconds(), 6) }

// share returns part / whole, to a millionth, and 0 if there is no whole.
func share(part, whole int64) float64 {
	if whole == 0 {
		return 0
	}
	return measure.Round(float64(part)/float64(whole), 6)
}
