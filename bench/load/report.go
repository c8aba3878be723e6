package load

import (
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/wire"
	"github.com/hitline/hitline/bench/workload"
)

// Report is the result of Run, over all steps. Requests are lookups, stores and
// evicts that were answered while measuring. Wrong and Refused count all answers.
type Report struct {
	Setup    measure.Setup   `json:"setup"`
	Mode     string          `json:"mode"` // closed or open
	Dialect  wire.Dialect    `json:"dialect"`
	Pipeline int             `json:"pipeline"`
	Hashes   string          `json:"hashes"` // of a lookup, as given
	HitShare float64         `json:"hit_share"`
	MissAt   workload.MissAt `json:"miss_at"`
	Entries  int             `json:"entries"` // hashes stored beforehand

	Connect     string `json:"connect"`
	Connections int    `json:"connections"`
	Threads     int    `json:"threads"` // that served the connections
	Cores       Cores  `json:"cores"`

	Seconds  float64 `json:"seconds"` // measured
	Requests int64   `json:"requests"`
	Stores   int64   `json:"stores"`
	Evicts   int64   `json:"evicts"`
	Refused  int64   `json:"refused"` // answers that say "not served"
	Wrong    int64   `json:"wrong"`   // answers that contradict what is right

	// Figures are those of the only step. They are nil after several, whose rates have
	// figures of their own and none together; reading one of the fields panics then.
	*Figures

	Steps   []Step `json:"steps"`
	Partial bool   `json:"partial,omitempty"` // it was cut short

	histogram *hdrhistogram.Histogram // of the last step, ns
}

// Cores says where both sides ran. Without Pinned nothing was kept to its cores, and
// ratios of two runs may be those of two placements.
type Cores struct {
	Client []int `json:"client"` // that this process might use, by the system's numbers
	Server []int `json:"server"` // nil: not known
	Pinned bool  `json:"pinned"` // this process was kept to them
}

// Figures are those of one step.
type Figures struct {
	RequestsPerSecond float64 `json:"requests_per_s"`
	LookupsPerSecond  float64 `json:"lookups_per_s"` // of these
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

	// Spread is the standard deviation of the samples' requests a second over their
	// mean; 0 with fewer than two samples. The bounds are those of the medians of
	// samples that have lookups; 0 without any.
	Spread   float64 `json:"spread"`
	P50usMin float64 `json:"p50_us_min,omitempty"`
	P50usMax float64 `json:"p50_us_max,omitempty"`

	samples int // that were taken
}

// Step is what was measured at one rate, or in the closed loop.
type Step struct {
	Rate     float64 `json:"rate"` // that was asked for, a second; 0 in a closed loop
	Seconds  float64 `json:"seconds"`
	Requests int64   `json:"requests"`
	Figures
	Refused int64 `json:"refused"`
	Wrong   int64 `json:"wrong"`
}

// WriteTable writes the report for people: lines of name and value, and a histogram or, of several
// rates, a row for each.
func (r Report) WriteTable(w io.Writer) error {
	var t measure.Table
	partial, perSecond, changes := "", "", ""
	if r.Partial {
		partial = " (in part)"
	}
	if r.Figures != nil {
		perSecond = fmt.Sprintf(", %s a second", measure.Grouped(int64(r.RequestsPerSecond)))
	}
	if r.Stores+r.Evicts > 0 {
		changes = fmt.Sprintf("; %s stores, %s evicts", measure.Grouped(r.Stores), measure.Grouped(r.Evicts))
	}
	t.Line("server", "%s, %s dialect%s", r.Connect, r.Dialect, partial)
	t.Line("setup", "%v", r.Setup)
	t.Line("cores", "%v", r.Cores)
	t.Line("load", "%s loop, %s connections, %d under way on each", r.Mode, measure.Grouped(int64(r.Connections)), r.Pipeline)
	t.Line("lookups", "%s hashes, %.4g %% hit whole, others miss at: %s", r.Hashes, 100*r.HitShare, r.MissAt)
	t.Line("index", "%s entries stored beforehand", measure.Grouped(int64(r.Entries)))
	t.Line("time", "%.3f s", r.Seconds)
	t.Line("requests", "%s%s%s", measure.Grouped(r.Requests), perSecond, changes)
	if r.Figures != nil {
		t.Line("hashes", "%s a second", measure.Grouped(int64(r.HashesPerSecond)))
	}
	t.Line("latency", "%s", latencyName(r.Mode == "open"))
	if r.Figures != nil {
		r.Figures.write(&t)
	}
	t.Line("wrong", "%s", measure.Grouped(r.Wrong))
	t.Line("refused", "%s", measure.Grouped(r.Refused))
	if r.Mode == "open" && r.Figures != nil {
		t.Line("unsent", "%s", measure.Grouped(r.Unsent))
	}
	if r.Figures != nil && r.histogram != nil {
		t.Bars(r.histogram)
	}
	if len(r.Steps) > 1 {
		t.Text("")
		t.Heads("rate", "a second", "lookups", "unsent", "p50 us", "p99 us", "p99.9 us", "max us")
		for _, s := range r.Steps {
			t.Row(fmt.Sprintf("%.6g", s.Rate), fmt.Sprintf("%.6g", s.RequestsPerSecond), fmt.Sprintf("%.6g", s.LookupsPerSecond), s.Unsent, s.us(s.P50us), s.us(s.P99us), s.us(s.P999us), s.us(s.MaxUs))
		}
	}
	return t.Write(w)
}

// String returns one line for people.
func (c Cores) String() string {
	server := "the server's are not known"
	if c.Server != nil {
		server = fmt.Sprintf("server %v", c.Server)
	}
	if !c.Pinned {
		return fmt.Sprintf("client not pinned, of %v; %s", c.Client, server)
	}
	return fmt.Sprintf("client %v; %s", c.Client, server)
}

// write adds the figures, a line each.
func (f *Figures) write(t *measure.Table) {
	bounds, atLeast := "", ""
	if f.P50usMax > 0 {
		bounds = fmt.Sprintf(" (%.1f to %.1f)", f.P50usMin, f.P50usMax)
	}
	if f.AtLeast > 0 {
		atLeast = "≥ "
	}
	t.Line("p50", "%s us%s", f.us(f.P50us), bounds)
	t.Line("p90", "%s us", f.us(f.P90us))
	t.Line("p99", "%s us", f.us(f.P99us))
	t.Line("p99.9", "%s us", f.us(f.P999us))
	t.Line("max", "%s us", f.us(f.MaxUs))
	t.Line("mean", "%s%.1f us", atLeast, f.MeanUs)
	if f.samples < 2 {
		t.Line("spread", "not known: it took less than two samples")
	} else {
		t.Line("spread", "%.1f %%", 100*f.Spread)
	}
}

// us formats a figure of latency, with a mark if it is a lower bound.
func (f *Figures) us(latency float64) string {
	if f.AtLeast > 0 && latency >= f.AtLeast {
		return fmt.Sprintf("≥ %.1f", latency)
	}
	return fmt.Sprintf("%.1f", latency)
}

// add adds a step.
func (r *Report) add(s Step, m *measured) {
	t := &m.total
	r.histogram = t.latency
	r.Requests += t.requests
	r.Stores += t.stores
	r.Evicts += t.evicts
	r.Seconds = measure.Round(r.Seconds+s.Seconds, 6)
	r.Steps = append(r.Steps, s)
	r.Figures = nil
	if len(r.Steps) == 1 {
		r.Figures = &s.Figures
	}
}

// step sums up what was measured.
func (m *measured) step(rate float64) Step {
	t := &m.total
	s := Step{Rate: rate, Requests: t.requests}
	s.Latency, s.Unsent, s.AtLeast = measure.LatencyOf(t.latency), t.unsent, measure.Micros(time.Duration(t.leastWait))
	if t.to > t.from {
		s.Seconds = seconds(t.to - t.from)
		s.LookupsPerSecond = perSecond(t.requests-t.stores-t.evicts, t.to-t.from)
		s.RequestsPerSecond, s.HashesPerSecond = perSecond(t.requests, t.to-t.from), perSecond(t.hashes, t.to-t.from)
	}
	s.Spread, s.samples = deviation(m.rates), len(m.rates)
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
	return measure.Round(math.Sqrt(squares)/mean, 4)
}

func seconds(ns int64) float64            { return measure.Round(float64(ns)/1e9, 6) }
func perSecond(n int64, ns int64) float64 { return measure.Round(float64(n)/(float64(ns)/1e9), 1) }
