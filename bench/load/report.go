//go:build linux

package load

import (
	"fmt"
	"io"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/process"
)

// Report is the result of Run, over all steps. Requests are lookups that were answered while measuring.
// Wrong and Refused count all answers.
type Report struct {
	Setup    measure.Setup `json:"setup"`
	Mode     string        `json:"mode"` // closed or open
	Pipeline int           `json:"pipeline"`
	Hashes   int           `json:"hashes"` // of a lookup
	HitShare float64       `json:"hit_share"`
	Entries  int           `json:"entries"` // hashes stored beforehand

	Connect     string `json:"connect"`
	Connections int    `json:"connections"`
	Threads     int    `json:"threads"` // that served the connections
	process.Placement

	Seconds  float64 `json:"seconds"` // measured
	Requests int64   `json:"requests"`
	Refused  int64   `json:"refused"` // answers that say "not served"
	Wrong    int64   `json:"wrong"`   // answers that contradict what is right

	Steps   []Step `json:"steps"`
	Partial bool   `json:"partial,omitempty"` // it was cut short

	histogram *hdrhistogram.Histogram // of the last step, ns
}

// Step is what was measured at one rate, or in the closed loop.
type Step struct {
	Rate     float64 `json:"rate"` // that was asked for, a second; 0 in a closed loop
	Seconds  float64 `json:"seconds"`
	Requests int64   `json:"requests"`

	RequestsPerSecond float64 `json:"requests_per_s"`
	HashesPerSecond   float64 `json:"hashes_per_s"`

	// Latency is that of lookups that were sent, or fell due, while measuring, whenever
	// they were answered. In an open loop it counts from when a lookup fell due.
	measure.Latency

	// Unsent lookups fell due while measuring and were never sent, for want of answers.
	// They count with what they had waited at the end, as do lookups that were under way
	// where a run was cut short and had waited for 20 ms, so that figures of latency from
	// AtLeast on (microseconds; 0 without any) are lower bounds.
	Unsent  int64   `json:"unsent"`
	AtLeast float64 `json:"at_least_from_us,omitempty"`

	Refused int64 `json:"refused"`
	Wrong   int64 `json:"wrong"`
}

// WriteTable writes the report for people: lines of name and value, and a row for each rate.
func (r Report) WriteTable(w io.Writer) error {
	var t measure.Table
	partial := ""
	if r.Partial {
		partial = " (in part)"
	}
	t.Line("server", "%s%s", r.Connect, partial)
	t.Line("setup", "%v", r.Setup)
	t.Line("cores", "%v", r.Placement)
	t.Line("load", "%s loop, %s connections, %d under way on each", r.Mode, measure.Grouped(int64(r.Connections)), r.Pipeline)
	t.Line("lookups", "%d hashes, %.4g %% hit whole", r.Hashes, 100*r.HitShare)
	t.Line("index", "%s entries stored beforehand", measure.Grouped(int64(r.Entries)))
	t.Line("time", "%.3f s", r.Seconds)
	t.Line("requests", "%s", measure.Grouped(r.Requests))
	t.Line("wrong", "%s", measure.Grouped(r.Wrong))
	t.Line("refused", "%s", measure.Grouped(r.Refused))
	latency := "round trip"
	if r.Mode == "open" { // from when a lookup fell due
		latency = "with stalls"
	}
	t.Line("latency", "%s", latency)
	t.Text("")
	t.Heads("rate", "requests/s", "unsent", "p50 us", "p90 us", "p99 us", "p99.9 us", "max us")
	for _, s := range r.Steps {
		rate := "any"
		if s.Rate > 0 {
			rate = fmt.Sprintf("%.6g", s.Rate)
		}
		t.Row(rate, int64(s.RequestsPerSecond), s.Unsent, s.us(s.P50us), s.us(s.P90us), s.us(s.P99us), s.us(s.P999us), s.us(s.MaxUs))
	}
	return t.Write(w)
}

// us formats a figure of latency, with a mark if it is a lower bound.
func (s *Step) us(latency float64) string {
	if s.AtLeast > 0 && latency >= s.AtLeast {
		return fmt.Sprintf("≥ %.1f", latency)
	}
	return fmt.Sprintf("%.1f", latency)
}

// add adds a step.
func (r *Report) add(s Step, t *tally) {
	r.histogram = t.latency
	r.Requests += s.Requests
	r.Seconds = measure.Round(r.Seconds+s.Seconds, 6)
	r.Steps = append(r.Steps, s)
}
