package load

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/process"
	"github.com/hitline/hitline/bench/wire"
)

// SweepReport is the result of Sweep. A rate counts by its median over the rounds, as do
// speed-up and slope, each of which is taken within a round; percentiles of latency are those
// of the lookups of all rounds, as Report counts them.
//
// The picture "scale" draws Points: RequestsPerSecond over Connections, a curve for each
// number of Loops, with the spread of the rounds. It has points, and no figures of its own.
type SweepReport struct {
	Setup    measure.Setup `json:"setup"`
	Mode     string        `json:"mode"` // closed
	Workload string        `json:"workload"`
	Dialect  wire.Dialect  `json:"dialect"`
	Hashes   string        `json:"hashes"` // of a lookup, as given
	HitShare float64       `json:"hit_share"`
	Pipeline int           `json:"pipeline"` // lookups under way on a connection
	Entries  int           `json:"entries"`  // hashes in the index, at least

	process.Placement
	Rounds  int     `json:"rounds"`
	Seconds float64 `json:"seconds_per_point"` // measured, in each round; 0: until so many requests

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

	rates []float64 // requests a second of each round, in their order
}

// Peak is the best point of a number of loops.
type Peak struct {
	Loops             int            `json:"loops"`
	Connections       int            `json:"connections"`
	RequestsPerSecond measure.Spread `json:"requests_per_s"`
	ServerCPU         float64        `json:"server_cpu"`

	// Over the fewest loops, and that over how many times as many loops; none with
	// shared cores.
	Speedup    *measure.Spread `json:"speedup,omitempty"`
	Efficiency float64         `json:"efficiency,omitempty"`

	speedups []float64 // of each round
}

// tally adds up the rounds of a point.
type tally struct {
	point   Point                   // its counts
	latency *hdrhistogram.Histogram // of lookups, ns; nil before the first
	cpu     []float64               // cores that the server kept busy, of each round
}

// add adds a round, in which the server kept so many cores busy.
func (t *tally) add(r Report, cpu float64) {
	t.point.rates = append(t.point.rates, r.RequestsPerSecond)
	t.point.Requests += r.Requests
	t.point.Wrong += r.Wrong
	t.point.Refused += r.Refused
	t.cpu = append(t.cpu, cpu)
	switch h := r.Histogram(); {
	case h == nil:
	case t.latency == nil:
		t.latency = hdrhistogram.Import(h.Export())
	default:
		t.latency.Merge(h)
	}
}

// summarize returns the point.
func (t *tally) summarize() Point {
	p := t.point
	p.RequestsPerSecond, p.ServerCPU = measure.SpreadOf(p.rates), measure.Median(t.cpu)
	if t.latency != nil {
		l := measure.LatencyOf(t.latency)
		p.P50us, p.P99us, p.MaxUs = l.P50us, l.P99us, l.MaxUs
	}
	return p
}

// report returns the report without what was measured.
func (s *sweep) report() SweepReport {
	o := s.o.Load.report()
	return SweepReport{
		Setup: o.Setup, Mode: o.Mode, Workload: o.Workload, Dialect: o.Dialect, Hashes: o.Hashes, HitShare: o.HitShare, Pipeline: o.Pipeline,
		Entries: s.o.Load.Entries, Placement: s.where, Rounds: s.o.Rounds, Seconds: s.o.Load.Duration.Seconds(),
		Points: []Point{}, Peaks: []Peak{},
	}
}

// fill adds what was measured until now, without peaks.
func (s *sweep) fill(r *SweepReport) {
	r.Wrong, r.Refused = s.wrong, s.refused
	for _, at := range s.keys() {
		if t := s.tallies[at]; t != nil {
			r.Points = append(r.Points, t.summarize())
		}
	}
}

// addPeaks adds the best of the points of each number of loops. All points have all
// rounds.
func (r *SweepReport) addPeaks() {
	for rest := r.Points; len(rest) > 0; {
		n := slices.IndexFunc(rest, func(p Point) bool { return p.Loops != rest[0].Loops })
		if n < 0 {
			n = len(rest)
		}
		r.addPeak(rest[:n])
		rest = rest[n:]
	}
}

// addPeak adds the best of the points, which have the same number of loops.
func (r *SweepReport) addPeak(points []Point) {
	best := slices.MaxFunc(points, func(a, b Point) int { return cmp.Compare(a.RequestsPerSecond.Median, b.RequestsPerSecond.Median) })
	p := Peak{Loops: best.Loops, Connections: best.Connections, RequestsPerSecond: best.RequestsPerSecond, ServerCPU: best.ServerCPU}
	first := best
	if len(r.Peaks) > 0 {
		first = r.Points[slices.IndexFunc(r.Points, func(q Point) bool {
			return q.Loops == r.Peaks[0].Loops && q.Connections == r.Peaks[0].Connections
		})]
	}
	if !r.Shared && slices.Min(first.rates) > 0 {
		p.speedups = measure.Ratios(best.rates, first.rates)
		speedup := measure.SpreadOf(p.speedups)
		p.Speedup, p.Efficiency = &speedup, measure.Round3(speedup.Median*float64(first.Loops)/float64(p.Loops))
	}
	r.Peaks = append(r.Peaks, p)
}

// fit sets the slope, of the peaks whose loops have a core each.
func (r *SweepReport) fit() {
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
	spread := measure.SpreadOf(slopes)
	r.Slope = &spread
}

// slope returns the slope of a round: that of the line through the speed-ups with the
// least squares of differences.
func slope(peaks []Peak, round int) float64 {
	n, x, y, xx, xy := float64(len(peaks)), 0.0, 0.0, 0.0, 0.0
	for _, p := range peaks {
		loops := float64(p.Loops) / float64(peaks[0].Loops)
		x, y, xx, xy = x+loops, y+p.speedups[round], xx+loops*loops, xy+loops*p.speedups[round]
	}
	return (n*xy - x*y) / (n*xx - x*x)
}

// WriteTable writes the report for people: lookups a second, a row for each number
// of connections and a column for each number of loops.
func (r SweepReport) WriteTable(w io.Writer) error {
	var t measure.Table
	t.Line("setup", "%v", r.Setup)
	t.Line("lookups", "%s, %s hashes, %.4g %% hit whole; %d under way on a connection", r.Workload, r.Hashes, 100*r.HitShare, r.Pipeline)
	t.Line("cores", "%v", r.Placement)
	t.Line("rounds", "%d, of %.3g s for each point; medians, with least and largest", r.Rounds, r.Seconds)
	t.Text("")
	r.writePoints(&t)
	t.Text("")
	for _, p := range r.Peaks {
		t.Line(plural(p.Loops, "loop"), "%s", p)
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

// String returns the peak for people.
func (p Peak) String() string {
	rate := p.RequestsPerSecond
	text := fmt.Sprintf("%.0f a second (%.0f to %.0f) at %d connections", rate.Median, rate.Min, rate.Max, p.Connections)
	if s := p.Speedup; s != nil {
		text += fmt.Sprintf("; %.2f times the first (%.2f to %.2f), efficiency %.2f", s.Median, s.Min, s.Max, p.Efficiency)
	}
	if p.ServerCPU > 0 {
		text += fmt.Sprintf("; the server kept %.2f cores busy", p.ServerCPU)
	}
	return text
}

// writePoints adds the table of the points, a row for each number of connections.
func (r SweepReport) writePoints(t *measure.Table) {
	heads, columns, rows := []string{"connections"}, map[int]int{}, map[int][]any{}
	var connections []int
	for _, p := range r.Points {
		if columns[p.Loops] == 0 {
			columns[p.Loops] = len(heads)
			heads = append(heads, plural(p.Loops, "loop"))
		}
		if rows[p.Connections] == nil {
			connections = append(connections, p.Connections)
			rows[p.Connections] = []any{p.Connections}
		}
		row := rows[p.Connections]
		for len(row) < columns[p.Loops] {
			row = append(row, "-")
		}
		rows[p.Connections] = append(row, int64(p.RequestsPerSecond.Median+0.5))
	}
	t.Heads(heads...)
	for _, n := range connections {
		row := rows[n]
		for len(row) < len(heads) {
			row = append(row, "-")
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
