package scale

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
)

// Report is the result of Run.
type Report struct {
	Mode     string `json:"mode"` // closed
	Dialect  string `json:"dialect"`
	Hashes   int    `json:"hashes"`   // a lookup
	Pipeline int    `json:"pipeline"` // lookups under way on a connection
	Entries  int    `json:"entries"`  // hashes in the index, at least

	Client  []int   `json:"client_cores"`
	Server  []int   `json:"server_cores"`
	Shared  bool    `json:"shared_cores"`      // they are the same
	Seconds float64 `json:"seconds_per_point"` // measured

	Points []Point `json:"points"`
	Peaks  []Peak  `json:"peaks"` // one for each number of loops, if it was measured whole

	// Slope is the speed-up that a further loop adds, 1 at best; none with shared
	// cores or a single number of loops.
	Slope *float64 `json:"slope,omitempty"`

	Wrong   int64 `json:"wrong"`
	Errors  int64 `json:"errors"` // refusals
	Partial bool  `json:"partial,omitempty"`
}

// Point is what was measured at one number of connections.
type Point struct {
	Loops             int     `json:"loops"`
	Connections       int     `json:"connections"`
	Requests          int64   `json:"requests"`
	RequestsPerSecond float64 `json:"requests_per_s"`
	P50us             float64 `json:"p50_us"`
	P99us             float64 `json:"p99_us"`
	ServerCPU         float64 `json:"server_cpu"` // cores that the server kept busy, on average; 0 not known
	Wrong             int64   `json:"wrong"`
	Errors            int64   `json:"errors"`
}

// Peak is the best point of a number of loops.
type Peak struct {
	Loops             int     `json:"loops"`
	Connections       int     `json:"connections"`
	RequestsPerSecond float64 `json:"requests_per_s"`
	ServerCPU         float64 `json:"server_cpu"`

	// Over the fewest loops, and that over how many times as many loops; none with
	// shared cores.
	Speedup    float64 `json:"speedup,omitempty"`
	Efficiency float64 `json:"efficiency,omitempty"`
}

// peak adds the best of the last points, which have the same number of loops.
func (r *Report) peak(points []Point) {
	best := slices.MaxFunc(points, func(a, b Point) int { return cmp.Compare(a.RequestsPerSecond, b.RequestsPerSecond) })
	p := Peak{Loops: best.Loops, Connections: best.Connections, RequestsPerSecond: best.RequestsPerSecond, ServerCPU: best.ServerCPU}
	first := p
	if len(r.Peaks) > 0 {
		first = r.Peaks[0]
	}
	if !r.Shared && first.RequestsPerSecond > 0 {
		speedup := p.RequestsPerSecond / first.RequestsPerSecond
		p.Speedup, p.Efficiency = round3(speedup), round3(speedup*float64(first.Loops)/float64(p.Loops))
	}
	r.Peaks = append(r.Peaks, p)
}

// fit sets the slope: of the line through the speed-ups with the least squares of
// differences.
func (r *Report) fit() {
	if r.Shared || len(r.Peaks) < 2 {
		return
	}
	n, x, y, xx, xy := float64(len(r.Peaks)), 0.0, 0.0, 0.0, 0.0
	for _, p := range r.Peaks {
		loops := float64(p.Loops) / float64(r.Peaks[0].Loops)
		x, y, xx, xy = x+loops, y+p.Speedup, xx+loops*loops, xy+loops*p.Speedup
	}
	slope := round3((n*xy - x*y) / (n*xx - x*x))
	r.Slope = &slope
}

func round3(x float64) float64 { return math.Round(x*1000) / 1000 }

// WriteJSON writes the report as one line of JSON.
func (r Report) WriteJSON(w io.Writer) error { return json.NewEncoder(w).Encode(r) }

// WriteTable writes the report for people: lookups a second, a row for each number
// of connections and a column for each number of loops.
func (r Report) WriteTable(w io.Writer) error {
	var text strings.Builder
	row := func(name, format string, values ...any) {
		fmt.Fprintf(&text, "%-12s %s\n", name, fmt.Sprintf(format, values...))
	}
	row("lookups", "%d hashes, all hit; %d under way on a connection", r.Hashes, r.Pipeline)
	if r.Shared {
		row("cores", "client and server share %v", r.Server)
	} else {
		row("cores", "client %v, server %v", r.Client, r.Server)
	}
	row("points", "%.3g s each", r.Seconds)
	text.WriteString("\n")
	r.writePoints(&text)
	text.WriteString("\n")
	for _, p := range r.Peaks {
		more := ""
		if p.Speedup > 0 {
			more += fmt.Sprintf("; %.2f times the first, efficiency %.2f", p.Speedup, p.Efficiency)
		}
		if p.ServerCPU > 0 {
			more += fmt.Sprintf("; the server kept %.2f cores busy", p.ServerCPU)
		}
		row(loopsName(p.Loops), "%.0f a second at %d connections%s", p.RequestsPerSecond, p.Connections, more)
	}
	switch {
	case r.Slope != nil:
		row("slope", "%.3f a loop", *r.Slope)
	case r.Shared:
		row("slope", "none: client and server share the cores, so that what loops add means nothing")
	}
	row("wrong", "%d", r.Wrong)
	row("errors", "%d", r.Errors)
	_, err := io.WriteString(w, text.String())
	return err
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
