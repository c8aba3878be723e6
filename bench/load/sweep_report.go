package load

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/process"
)

// SweepReport is the result of Sweep. A rate counts by its median over the rounds, as do
// speed-up and slope, each of which is taken within a round; percentiles of latency are those
// of the lookups of all rounds, as Report counts them.
//
// The picture "scale" draws Points: RequestsPerSecond over Connections, a curve for each
// number of Loops, with the spread of the rounds. It has points, and no figures of its own.
type SweepReport struct {
	Asked // Entries are those asked for: each point has at least as many

	process.Placement
	Rounds  int     `json:"rounds"`
	Seconds float64 `json:"seconds_per_point"` // measured, in each round; 0: until a number of requests

	Points []Point `json:"points"` // by loops and then by connections
	Peaks  []Peak  `json:"peaks"`  // one for each number of loops; none in a partial report

	// Slope is the speed-up that a further loop adds, 1 at best, fitted over the peaks; nil
	// without two numbers of loops that have cores of their own.
	Slope *measure.Spread `json:"slope,omitempty"`

	Wrong   int64 `json:"wrong"`
	Refused int64 `json:"refused"`
	Partial bool  `json:"partial,omitempty"`
}

// Point is what was measured at one number of connections, in all rounds.
type Point struct {
	Loops             int            `json:"loops"`
	Connections       int            `json:"connections"`
	Requests          int64          `json:"requests"`
	RequestsPerSecond measure.Spread `json:"requests_per_s"`
	P50us             float64        `json:"p50_us"` // of the lookups of all rounds, as are the next two
	P99us             float64        `json:"p99_us"`
	MaxUs             float64        `json:"max_us"`
	ServerCPU         float64        `json:"server_cpu"` // cores that the server kept busy, on average; 0 not known
	Wrong             int64          `json:"wrong"`
	Refused           int64          `json:"refused"`

	rates, cpu []float64               // requests a second and ServerCPU of each round, in their order
	latency    *hdrhistogram.Histogram // of lookups, ns; nil before the first round
}

// Peak is the best point of a number of loops.
type Peak struct {
	Point
	Speedup *measure.Spread `json:"speedup,omitempty"` // over the fewest loops; nil with shared cores
}

// add adds a round, in which the server kept cpu cores busy.
func (p *Point) add(r Report, cpu float64) {
	p.rates, p.cpu = append(p.rates, r.RequestsPerSecond), append(p.cpu, cpu)
	p.Requests += r.Requests
	p.Wrong += r.Wrong
	p.Refused += r.Refused
	switch h := r.Histogram(); {
	case h == nil:
	case p.latency == nil:
		p.latency = hdrhistogram.Import(h.Export())
	default:
		p.latency.Merge(h)
	}
}

// summarize fills in the figures of the rounds that were added, at least one.
func (p *Point) summarize() {
	p.RequestsPerSecond, p.ServerCPU = measure.SpreadOf(p.rates), measure.Median(p.cpu)
	if p.latency != nil {
		l := measure.LatencyOf(p.latency)
		p.P50us, p.P99us, p.MaxUs = l.P50us, l.P99us, l.MaxUs
	}
}

// summarize fills in the figures of the points, and leaves those out that were not measured.
// Only of all points are there peaks and a slope.
func (r *SweepReport) summarize(partial bool) {
	r.Partial = partial
	r.Points = slices.DeleteFunc(r.Points, func(p Point) bool { return len(p.rates) == 0 })
	for i := range r.Points {
		r.Points[i].summarize()
	}
	if !partial {
		r.addPeaks()
		r.fit()
	}
}

// addPeaks adds the best of the points of each number of loops.
func (r *SweepReport) addPeaks() {
	for _, p := range r.Points {
		n := len(r.Peaks)
		if n == 0 || r.Peaks[n-1].Loops != p.Loops {
			r.Peaks = append(r.Peaks, Peak{Point: p})
		} else if p.RequestsPerSecond.Median > r.Peaks[n-1].RequestsPerSecond.Median {
			r.Peaks[n-1].Point = p
		}
	}
	first := r.Peaks[0].rates
	if r.Shared || slices.Min(first) <= 0 {
		return
	}
	for i := range r.Peaks {
		speedup := measure.SpreadOf(measure.Ratios(r.Peaks[i].rates, first))
		r.Peaks[i].Speedup = &speedup
	}
}

// fit sets the slope, of the peaks whose loops have a core each.
func (r *SweepReport) fit() {
	peaks := slices.DeleteFunc(slices.Clone(r.Peaks), func(p Peak) bool { return p.Loops > len(r.Server) })
	if len(peaks) < 2 || peaks[0].Speedup == nil {
		return
	}
	slopes := make([]float64, r.Rounds)
	for round := range slopes {
		slopes[round] = slope(peaks, round)
	}
	spread := measure.SpreadOf(slopes)
	r.Slope = &spread
}

// slope returns the slope of a round: that of the line through the speed-ups with the
// least squares of differences.
func slope(peaks []Peak, round int) float64 {
	n, x, y, xx, xy := float64(len(peaks)), 0.0, 0.0, 0.0, 0.0
	for _, p := range peaks {
		loops, speedup := float64(p.Loops)/float64(peaks[0].Loops), p.rates[round]/peaks[0].rates[round]
		x, y, xx, xy = x+loops, y+speedup, xx+loops*loops, xy+loops*speedup
	}
	return (n*xy - x*y) / (n*xx - x*x)
}

// WriteTable writes the report for people: lookups a second, a row for each number
// of connections and a column for each number of loops.
func (r SweepReport) WriteTable(w io.Writer) error {
	var t measure.Table
	t.Line("setup", "%v", r.Setup)
	t.Line("lookups", "%s; %d under way on a connection", r.lookups(), r.Pipeline)
	t.Line("cores", "%v", r.Placement)
	t.Line("rounds", "%d, of %.3g s for each point; medians, with least and largest", r.Rounds, r.Seconds)
	t.Text("")
	r.writePoints(&t)
	t.Text("")
	for _, p := range r.Peaks {
		t.Line(plural(p.Loops, "loop"), "%s", p.describe(r.Peaks[0].Loops))
	}
	switch {
	case r.Slope != nil:
		t.Line("slope", "%.3f a loop (%.3f to %.3f)", r.Slope.Median, r.Slope.Min, r.Slope.Max)
	case len(r.Server) < 2:
		t.Line("slope", "none: it takes two cores for the server, and one for the client")
	}
	t.Line("wrong", "%s", measure.Grouped(r.Wrong))
	t.Line("refused", "%s", measure.Grouped(r.Refused))
	return t.Write(w)
}

// describe returns the peak for people. Its efficiency is the speed-up over how many times as many
// loops as the fewest it has.
func (p Peak) describe(fewest int) string {
	rate := p.RequestsPerSecond
	text := fmt.Sprintf("%.0f a second (%.0f to %.0f) at %d connections", rate.Median, rate.Min, rate.Max, p.Connections)
	if s := p.Speedup; s != nil {
		text += fmt.Sprintf("; %.2f times the first (%.2f to %.2f), efficiency %.2f", s.Median, s.Min, s.Max, s.Median*float64(fewest)/float64(p.Loops))
	}
	if p.ServerCPU > 0 {
		text += fmt.Sprintf("; the server kept %.2f cores busy", p.ServerCPU)
	}
	return text
}

// writePoints adds the table of the points, a row for each number of connections. In a partial
// report some have not been measured.
func (r SweepReport) writePoints(t *measure.Table) {
	rates, heads := map[[2]int]any{}, []string{"connections"}
	var loops, connections []int
	for _, p := range r.Points {
		rates[[2]int{p.Loops, p.Connections}] = int64(p.RequestsPerSecond.Median + 0.5)
		loops, connections = append(loops, p.Loops), append(connections, p.Connections)
	}
	loops, connections = sortedSet(loops), sortedSet(connections)
	for _, n := range loops {
		heads = append(heads, plural(n, "loop"))
	}
	t.Heads(heads...)
	for _, n := range connections {
		row := []any{n}
		for _, loops := range loops {
			row = append(row, cmp.Or(rates[[2]int{loops, n}], "-"))
		}
		t.Row(row...)
	}
}

// plural returns a number of things for people.
func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
