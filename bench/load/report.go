package load

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Report is the result of Run, over all steps. Requests are lookups, stores and
// evicts that were answered while measuring; latency is that of lookups that were
// sent, or fell due, while measuring and were answered before its end, in an open
// loop also after it. Wrong and Errors count all answers.
type Report struct {
	Connect     string  `json:"connect"`
	Dialect     Dialect `json:"dialect"`
	Mode        string  `json:"mode"` // closed or open
	Connections int     `json:"connections"`
	Pipeline    int     `json:"pipeline"`
	Anchored    bool    `json:"anchored,omitempty"`
	Hashes      string  `json:"hashes"` // of a lookup, as given
	HitShare    float64 `json:"hit_share"`
	MissAt      MissAt  `json:"miss_at"`
	Entries     int     `json:"entries"` // hashes stored beforehand

	Seconds  float64 `json:"seconds"` // measured
	Requests int64   `json:"requests"`
	Stores   int64   `json:"stores"`
	Evicts   int64   `json:"evicts"`
	Errors   int64   `json:"errors"` // refusals
	Wrong    int64   `json:"wrong"`

	RequestsPerSecond float64 `json:"requests_per_s"`
	HashesPerSecond   float64 `json:"hashes_per_s"`
	Latency

	// Spread is the standard deviation of the samples' requests a second over their
	// mean: the largest of the steps; 0 with fewer than two samples. The bounds are
	// those of the medians of samples that have lookups; 0 without any.
	Spread   float64 `json:"spread"`
	P50usMin float64 `json:"p50_us_min"`
	P50usMax float64 `json:"p50_us_max"`

	Steps   []Step `json:"steps"`
	Partial bool   `json:"partial,omitempty"` // it was cut short

	histogram *hdrhistogram.Histogram // ns
	hashes    int64                   // in the requests
	samples   int                     // most of a step
	bounded   bool                    // there are bounds of medians
}

// Latency is how long lookups took, in microseconds to 0.1; 0 without any.
type Latency struct {
	P50us  float64 `json:"p50_us"`
	P90us  float64 `json:"p90_us"`
	P99us  float64 `json:"p99_us"`
	P999us float64 `json:"p999_us"`
	Maxus  float64 `json:"max_us"`
	Meanus float64 `json:"mean_us"`
}

// Step is what was measured at one rate, or in the closed loop.
type Step struct {
	Rate              float64 `json:"rate"` // that was asked for, a second; 0 in a closed loop
	Seconds           float64 `json:"seconds"`
	Requests          int64   `json:"requests"`
	Unsent            int64   `json:"unsent"` // fell due while measuring and were never sent, for want of answers
	RequestsPerSecond float64 `json:"requests_per_s"`
	Latency
	Spread   float64 `json:"spread"`
	P50usMin float64 `json:"p50_us_min"`
	P50usMax float64 `json:"p50_us_max"`
	Errors   int64   `json:"errors"`
	Wrong    int64   `json:"wrong"`
}

// WriteJSON writes the report as one line of JSON.
func (r Report) WriteJSON(w io.Writer) error { return json.NewEncoder(w).Encode(r) }

// Histogram returns the distribution of lookup latencies in nanoseconds, for one who
// merges those of several runs; nil if nothing was measured, or in a report that was
// read. It is the report's own: read it only.
func (r Report) Histogram() *hdrhistogram.Histogram { return r.histogram }

// WriteHDR writes the distribution of lookup latencies in microseconds, in the text
// format that plotters of HdrHistogram read.
func (r Report) WriteHDR(w io.Writer) error {
	h := r.histogram
	if h == nil {
		h = newHistogram()
	}
	_, err := h.PercentilesPrint(w, 5, 1000)
	return err
}

// WriteTable writes the report as lines of name and value, for people, and a table
// of the steps of a sweep.
func (r Report) WriteTable(w io.Writer) error {
	var text strings.Builder
	row := func(name, format string, values ...any) {
		fmt.Fprintf(&text, "%-12s %s\n", name, fmt.Sprintf(format, values...))
	}
	partial := ""
	if r.Partial {
		partial = " (in part)"
	}
	row("server", "%s, %s dialect%s", r.Connect, r.Dialect, partial)
	row("load", "%s loop, %s connections, %d under way on each", r.Mode, grouped(int64(r.Connections)), r.Pipeline)
	row("lookups", "%s hashes, %.4g %% hit whole, others miss at: %s", r.Hashes, 100*r.HitShare, r.MissAt)
	row("index", "%s entries stored beforehand", grouped(int64(r.Entries)))
	row("time", "%.3f s", r.Seconds)
	changes := ""
	if r.Stores+r.Evicts > 0 {
		changes = fmt.Sprintf("; %s stores, %s evicts", grouped(r.Stores), grouped(r.Evicts))
	}
	row("requests", "%s, %s a second%s", grouped(r.Requests), grouped(int64(r.RequestsPerSecond)), changes)
	row("hashes", "%s a second", grouped(int64(r.HashesPerSecond)))
	bounds := ""
	if r.bounded {
		bounds = fmt.Sprintf(" (%.1f to %.1f)", r.P50usMin, r.P50usMax)
	}
	row("p50", "%.1f us%s", r.P50us, bounds)
	row("p90", "%.1f us", r.P90us)
	row("p99", "%.1f us", r.P99us)
	row("p99.9", "%.1f us", r.P999us)
	row("max", "%.1f us", r.Maxus)
	row("mean", "%.1f us", r.Meanus)
	if r.samples < 2 {
		row("spread", "not known: it took less than two samples")
	} else {
		row("spread", "%.1f %%", 100*r.Spread)
	}
	row("wrong", "%s", grouped(r.Wrong))
	row("errors", "%s", grouped(r.Errors))
	if r.Mode == "open" {
		r.writeSteps(&text)
	}
	_, err := io.WriteString(w, text.String())
	return err
}

func (r Report) writeSteps(text *strings.Builder) {
	fmt.Fprintf(text, "\n%12s %12s %12s %10s %10s %10s %10s\n", "rate", "a second", "unsent", "p50 us", "p99 us", "p99.9 us", "max us")
	for _, s := range r.Steps {
		fmt.Fprintf(text, "%12.6g %12.6g %12d %10.1f %10.1f %10.1f %10.1f\n",
			s.Rate, s.RequestsPerSecond, s.Unsent, s.P50us, s.P99us, s.P999us, s.Maxus)
	}
}

// add adds what a step measured.
func (r *Report) add(s Step, m *measured) {
	if r.histogram == nil {
		r.histogram = newHistogram()
	}
	t := &m.total
	r.histogram.Merge(t.latency)
	r.Requests += t.requests
	r.Stores += t.stores
	r.Evicts += t.evicts
	r.Seconds = round(r.Seconds+s.Seconds, 1e6)
	r.hashes += t.hashes
	if r.Seconds > 0 {
		r.RequestsPerSecond = round(float64(r.Requests)/r.Seconds, 10)
		r.HashesPerSecond = round(float64(r.hashes)/r.Seconds, 10)
	}
	r.Latency = latencyOf(r.histogram)
	r.Spread = max(r.Spread, s.Spread)
	r.samples = max(r.samples, len(m.samples))
	if len(m.medians) > 0 {
		if !r.bounded || r.P50usMin > s.P50usMin {
			r.P50usMin = s.P50usMin
		}
		r.P50usMax, r.bounded = max(r.P50usMax, s.P50usMax), true
	}
	r.Steps = append(r.Steps, s)
}

// step sums up what was measured.
func (m *measured) step(rate float64) Step {
	t := &m.total
	s := Step{Rate: rate, Requests: t.requests, Unsent: t.unsent, Latency: latencyOf(t.latency)}
	if t.to > t.from {
		s.Seconds, s.RequestsPerSecond = seconds(t.to-t.from), perSecond(t.requests, t.to-t.from)
	}
	var rates []float64
	for _, sample := range m.samples {
		rates = append(rates, sample.RequestsPerSecond)
	}
	s.Spread = deviation(rates)
	if len(m.medians) > 0 {
		s.P50usMin, s.P50usMax = slices.Min(m.medians), slices.Max(m.medians)
	}
	return s
}

// deviation returns the standard deviation over the mean.
func deviation(figures []float64) float64 {
	mean, squares := 0.0, 0.0
	for _, x := range figures {
		mean += x / float64(len(figures))
	}
	for _, x := range figures {
		squares += (x - mean) * (x - mean) / float64(len(figures))
	}
	if mean == 0 {
		return 0
	}
	return round(math.Sqrt(squares)/mean, 1e4)
}

func latencyOf(h *hdrhistogram.Histogram) Latency {
	return Latency{
		P50us: micros(h.ValueAtQuantile(50)), P90us: micros(h.ValueAtQuantile(90)),
		P99us: micros(h.ValueAtQuantile(99)), P999us: micros(h.ValueAtQuantile(99.9)),
		Maxus: micros(h.Max()), Meanus: round(h.Mean()/1e3, 10),
	}
}

func round(x, parts float64) float64      { return math.Round(x*parts) / parts }
func micros(ns int64) float64             { return round(float64(ns)/1e3, 10) }
func seconds(ns int64) float64            { return round(float64(ns)/1e9, 1e6) }
func perSecond(n int64, ns int64) float64 { return round(float64(n)/(float64(ns)/1e9), 10) }

// grouped formats n with a comma before every three digits.
func grouped(n int64) string {
	text := strconv.FormatInt(n, 10)
	for at := len(text) - 3; at > 0; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return text
}
