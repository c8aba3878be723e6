package scale

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/hitline/hitline/bench/load"
	"github.com/hitline/hitline/bench/measure"
)

// Report is the result of Run. Rates, speed-ups and the slope are medians of the
// rounds; the fields beside them that end in Min and Max are the least and the
// largest of a round.
type Report struct {
	Setup    measure.Setup `json:"setup"`
	Mode     string        `json:"mode"` // closed
	Dialect  string        `json:"dialect"`
	Hashes   int           `json:"hashes"`   // a lookup
	Pipeline int           `json:"pipeline"` // lookups under way on a connection
	Entries  int           `json:"entries"`  // hashes in the index, at least

	Client  []int   `json:"client_cores"`
	Server  []int   `json:"server_cores"`
	Shared  bool    `json:"shared_cores"` // they are the same
	Rounds  int     `json:"rounds"`
	Seconds float64 `json:"seconds_per_point"` // measured, in each round

	Points []Point `json:"points"` // by loops and then by connections
	Peaks  []Peak  `json:"peaks"`  // one for each number of loops; none in a partial report

	// Slope is the speed-up that a further loop adds, 1 at best; none without two
	// numbers of loops that have cores of their own.
	Slope    *float64 `json:"slope,omitempty"`
	SlopeMin *float64 `json:"slope_min,omitempty"`
	SlopeMax *float64 `json:"slope_max,omitempty"`

	Wrong   int64 `json:"wrong"`
	Errors  int64 `json:"errors"` // refusals
	Partial bool  `json:"partial,omitempty"`
}

// Point is what was measured at one number of connections, in all rounds.
type Point struct {
	Loops                int     `json:"loops"`
	Connections          int     `json:"connections"`
	Requests             int64   `json:"requests"`
	RequestsPerSecond    float64 `json:"requests_per_s"`
	RequestsPerSecondMin float64 `json:"requests_per_s_min"`
	RequestsPerSecondMax float64 `json:"requests_per_s_max"`
	P50us                float64 `json:"p50_us"` // of the lookups of all rounds, as are the next two
	P99us                float64 `json:"p99_us"`
	Maxus                float64 `json:"max_us"`
	ServerCPU            float64 `json:"server_cpu"` // cores that the server kept busy, on average; 0 not known
	Wrong                int64   `json:"wrong"`
	Errors               int64   `json:"errors"`

	rates []float64 // requests a second of each round, in their order
}

// Peak is the best point of a number of loops.
type Peak struct {
	Loops                int     `json:"loops"`
	Connections          int     `json:"connections"`
	RequestsPerSecond    float64 `json:"requests_per_s"`
	RequestsPerSecondMin float64 `json:"requests_per_s_min"`
	RequestsPerSecondMax float64 `json:"requests_per_s_max"`
	ServerCPU            float64 `json:"server_cpu"`

	// Over the fewest loops, and that over how many times as many loops; none with
	// shared cores.
	Speedup    float64 `json:"speedup,omitempty"`
	SpeedupMin float64 `json:"speedup_min,omitempty"`
	SpeedupMax float64 `json:"speedup_max,omitempty"`
	Efficiency float64 `json:"efficiency,omitempty"`

	speedups []float64 // of each round
}

// tally adds up the rounds of a point.
type tally struct {
	point   Point                   // its counts
	latency *hdrhistogram.Histogram // of lookups, ns; nil before the first
	cpu     []float64               // cores that the server kept busy, of each round
}

// add adds a round, in which the server kept so many cores busy.
func (t *tally) add(r load.Report, cpu float64) {
	t.point.rates = append(t.point.rates, r.RequestsPerSecond)
	t.point.Requests += r.Requests
	t.point.Wrong += r.Wrong
	t.point.Errors += r.Errors
	t.cpu = append(t.cpu, cpu)
	t.pool(r.Histogram())
}

// pool adds the latencies of a round; nil for none.
func (t *tally) pool(latency *hdrhistogram.Histogram) {
	switch {
	case latency == nil:
	case t.latency == nil:
		t.latency = hdrhistogram.Import(latency.Export())
	default:
		t.latency.Merge(latency)
	}
}

// summarize returns the point.
func (t *tally) summarize() Point {
	p := t.point
	p.RequestsPerSecond, p.RequestsPerSecondMin, p.RequestsPerSecondMax = measure.Range(p.rates)
	p.ServerCPU = measure.Median(t.cpu)
	if h := t.latency; h != nil {
		p.P50us, p.P99us, p.Maxus = micros(measure.OfHistogram(h, 50)), micros(measure.OfHistogram(h, 99)), micros(h.Max())
	}
	return p
}

func micros(ns int64) float64 { return measure.Micros(time.Duration(ns)) }

// addPeaks adds the best of the points of each number of loops. All points have all
// rounds.
func (r *Report) addPeaks() {
	for from := 0; from < len(r.Points); {
		to := from
		for to < len(r.Points) && r.Points[to].Loops == r.Points[from].Loops {
			to++
		}
		r.addPeak(r.Points[from:to])
		from = to
	}
}

// addPeak adds the best of the points, which have the same number of loops.
func (r *Report) addPeak(points []Point) {
	best := slices.MaxFunc(points, func(a, b Point) int { return cmp.Compare(a.RequestsPerSecond, b.RequestsPerSecond) })
	p := Peak{
		Loops: best.Loops, Connections: best.Connections, RequestsPerSecond: best.RequestsPerSecond,
		RequestsPerSecondMin: best.RequestsPerSecondMin, RequestsPerSecondMax: best.RequestsPerSecondMax, ServerCPU: best.ServerCPU,
	}
	first := best
	if len(r.Peaks) > 0 {
		first = r.pointOf(r.Peaks[0])
	}
	if !r.Shared && slices.Min(first.rates) > 0 {
		for round, rate := range best.rates {
			p.speedups = append(p.speedups, measure.Round3(rate/first.rates[round]))
		}
		p.Speedup, p.SpeedupMin, p.SpeedupMax = measure.Range(p.speedups)
		p.Efficiency = measure.Round3(p.Speedup * float64(first.Loops) / float64(p.Loops))
	}
	r.Peaks = append(r.Peaks, p)
}

// pointOf returns the point of a peak.
func (r *Report) pointOf(p Peak) Point {
	at := slices.IndexFunc(r.Points, func(q Point) bool { return q.Loops == p.Loops && q.Connections == p.Connections })
	return r.Points[at]
}

// fit sets the slope, of the peaks whose loops have a core each.
func (r *Report) fit() {
	var peaks []Peak
	for _, p := range r.Peaks {
		if p.Loops <= len(r.Server) && p.speedups != nil {
			peaks = append(peaks, p)
		}
	}
	if r.Shared || len(peaks) < 2 {
		return
	}
	slopes := make([]float64, r.Rounds)
	for round := range slopes {
		slopes[round] = slope(peaks, round)
	}
	median, least, most := measure.Range(slopes)
	r.Slope, r.SlopeMin, r.SlopeMax = &median, &least, &most
}

// slope returns the slope of a round: that of the line through the speed-ups with the
// least squares of differences.
func slope(peaks []Peak, round int) float64 {
	n, x, y, xx, xy := float64(len(peaks)), 0.0, 0.0, 0.0, 0.0
	for _, p := range peaks {
		loops := float64(p.Loops) / float64(peaks[0].Loops)
		x, y, xx, xy = x+loops, y+p.speedups[round], xx+loops*loops, xy+loops*p.speedups[round]
	}
	return measure.Round3((n*xy - x*y) / (n*xx - x*x))
}

// WriteJSON writes the report as one line of JSON.
func (r Report) WriteJSON(w io.Writer) error { return json.NewEncoder(w).Encode(r) }

// WriteTable writes the report for people: lookups a second, a row for each number
// of connections and a column for each number of loops.
func (r Report) WriteTable(w io.Writer) error {
	var text strings.Builder
	row := func(name, format string, values ...any) {
		fmt.Fprintf(&text, "%-12s %s\n", name, fmt.Sprintf(format, values...))
	}
	row("setup", "%v", r.Setup)
	row("lookups", "%d hashes, all hit; %d under way on a connection", r.Hashes, r.Pipeline)
	if r.Shared {
		row("cores", "client and server share %v", r.Server)
	} else {
		row("cores", "client %v, server %v", r.Client, r.Server)
	}
	row("rounds", "%d, of %.3g s for each point; medians, with least and largest", r.Rounds, r.Seconds)
	text.WriteString("\n")
	r.writePoints(&text)
	text.WriteString("\n")
	for _, p := range r.Peaks {
		row(loopsName(p.Loops), "%s", p)
	}
	switch {
	case r.Slope != nil:
		row("slope", "%.3f a loop (%.3f to %.3f)", *r.Slope, *r.SlopeMin, *r.SlopeMax)
	case len(r.Server) < 2:
		row("slope", "none: it takes two cores for the server, and one for the client")
	}
	row("wrong", "%d", r.Wrong)
	row("errors", "%d", r.Errors)
	_, err := io.WriteString(w, text.String())
	return err
}

// String returns the peak for people.
func (p Peak) String() string {
	text := fmt.Sprintf("%.0f a second (%.0f to %.0f) at %d connections", p.RequestsPerSecond, p.RequestsPerSecondMin, p.RequestsPerSecondMax, p.Connections)
	if p.Speedup > 0 {
		text += fmt.Sprintf("; %.2f times the first (%.2f to %.2f), efficiency %.2f", p.Speedup, p.SpeedupMin, p.SpeedupMax, p.Efficiency)
	}
	if p.ServerCPU > 0 {
		text += fmt.Sprintf("; the server kept %.2f cores busy", p.ServerCPU)
	}
	return text
}

// writePoints writes the table of the points.
func (r Report) writePoints(text *strings.Builder) {
	var heads, rows []int
	cells := map[[2]int]float64{}
	for _, p := range r.Points {
		if !slices.Contains(heads, p.Loops) {
			heads = append(heads, p.Loops)
		}
		if !slices.Contains(rows, p.Connections) {
			rows = append(rows, p.Connections)
		}
		cells[[2]int{p.Loops, p.Connections}] = p.RequestsPerSecond
	}
	fmt.Fprintf(text, "%-12s", "connections")
	for _, n := range heads {
		fmt.Fprintf(text, " %11s", loopsName(n))
	}
	text.WriteString("\n")
	for _, n := range rows {
		fmt.Fprintf(text, "%-12d", n)
		for _, head := range heads {
			cell := "-"
			if v, ok := cells[[2]int{head, n}]; ok {
				cell = fmt.Sprintf("%.0f", v)
			}
			fmt.Fprintf(text, " %11s", cell)
		}
		text.WriteString("\n")
	}
}

func loopsName(n int) string {
	if n == 1 {
		return "1 loop"
	}
	return fmt.Sprintf("%d loops", n)
}

func coresName(n int) string {
	if n == 1 {
		return "1 core"
	}
	return fmt.Sprintf("%d cores", n)
}
