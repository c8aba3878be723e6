package picture

import (
	"fmt"
	"strconv"
	"strings"
)

// runReport is what latency uses of a report of hitbench run.
type runReport struct {
	load
	Requests int     `json:"requests"`
	P50      float64 `json:"p50_us"`
	P90      float64 `json:"p90_us"`
	P99      float64 `json:"p99_us"`
	P999     float64 `json:"p999_us"`
	P9999    float64 `json:"p9999_us"`
	Max      float64 `json:"max_us"`

	Rows []compareRow `json:"rows"` // of a comparison
}

// load says how a server was loaded.
type load struct {
	Mode        string  `json:"mode"` // closed or open
	Dialect     string  `json:"dialect"`
	Connections int     `json:"connections"`
	Pipeline    int     `json:"pipeline"`
	Hashes      asGiven `json:"hashes"`
}

// asGiven is a number or a text such as "64-4096".
type asGiven string

// UnmarshalJSON implements json.Unmarshaler.
func (a *asGiven) UnmarshalJSON(b []byte) error {
	*a = asGiven(strings.Trim(string(b), `"`))
	return nil
}

// number returns the number that it is.
func (a asGiven) number() (float64, error) { return strconv.ParseFloat(string(a), 64) }

// String describes the load, without what is not known.
func (l load) String() string {
	var parts []string
	if l.Mode != "" {
		parts = append(parts, l.Mode+" loop")
	}
	if l.Connections > 0 {
		parts = append(parts, plural(l.Connections, "connection"))
	}
	if l.Pipeline > 1 {
		parts = append(parts, strconv.Itoa(l.Pipeline)+" under way on each")
	}
	if l.Hashes != "" {
		parts = append(parts, string(l.Hashes)+" hashes a lookup")
	}
	if l.Dialect != "" {
		parts = append(parts, l.Dialect+" dialect")
	}
	return strings.Join(parts, ", ")
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

// latency draws percentiles of how long lookups took.
func latency(sources []Source, o Options) (figure, error) {
	f := figure{title: "Lookup latency"}
	p := panel{
		x: axis{"percentile of lookups (%)", percentile},
		y: axis{"latency (µs)", log},
	}
	about := map[string]bool{}
	var loads []string
	for _, s := range sources {
		r, err := decode[runReport](s)
		if err != nil {
			return f, err
		}
		if len(r.Rows) > 0 {
			curves, hashes, err := rivalPercentiles(s, r.Rows, o.Hashes)
			if err != nil {
				return f, err
			}
			p.curves = append(p.curves, curves...)
			about[fmt.Sprintf("round trips of %d hashes on one connection", hashes)] = true
			loads = append(loads, make([]string, len(curves))...)
			continue
		}
		if r.P50 == 0 {
			return f, lacks(s, "p50_us", "hitbench run --json or hitbench compare --json")
		}
		points, err := r.percentiles(s)
		if err != nil {
			return f, err
		}
		p.curves = append(p.curves, curve{name: s.Name, points: points})
		text := r.load.String() + "; the last point is the slowest lookup"
		about[text] = true
		loads = append(loads, r.load.String())
	}
	f.about = told(about, loads, p.curves)
	f.panels = []panel{p}
	return f, nil
}

// told returns the description that all curves share. If there are several it
// goes into their names.
func told(about map[string]bool, loads []string, curves []curve) string {
	if len(about) == 1 {
		for text := range about {
			return text
		}
	}
	for i, text := range loads {
		if text != "" {
			curves[i].name += ": " + text
		}
	}
	return "the last point of a load is its slowest lookup"
}

// percentiles returns the points that the report has; the longest time stands at
// the share of one request.
func (r runReport) percentiles(s Source) ([]point, error) {
	var points []point
	for _, p := range []struct {
		below, us float64
		name      string
	}{{0.5, r.P50, "p50_us"}, {0.9, r.P90, "p90_us"}, {0.99, r.P99, "p99_us"}, {0.999, r.P999, "p999_us"}, {0.9999, r.P9999, "p9999_us"}} {
		if p.us == 0 {
			continue // older and newer reports differ in how many they have
		}
		if err := positive(s, p.name, p.us); err != nil {
			return nil, err
		}
		points = append(points, point{x: p.below, y: p.us})
	}
	if most := 1 - 1/float64(max(r.Requests, 1)); r.Max > 0 && most > points[len(points)-1].x {
		points = append(points, point{x: most, y: r.Max})
	}
	return points, nil
}

// compareRow is a row of hitbench compare.
type compareRow struct {
	Rival  string  `json:"rival"`
	Way    string  `json:"way"` // in which it was asked; older reports have one row a rival, and none
	Hashes int     `json:"hashes"`
	P50    float64 `json:"p50_us"`
	Min    float64 `json:"p50_us_min"` // of the rounds
	Max    float64 `json:"p50_us_max"`
	P99    float64 `json:"p99_us"`
	Note   string  `json:"note"`
	Wrong  int     `json:"wrong"`
}

// prepared tells whether the rival was asked by bytes made before.
func (r compareRow) prepared() bool { return r.Way == "" || r.Way == "prepared" }

// name returns what the legend calls the rival.
func (r compareRow) name() string {
	switch {
	case r.Rival == bareSocket:
		return "raw socket, no lookup"
	case strings.Contains(r.Note, "miss only"): // it was spared what the others do
		return r.Rival + " (misses only)"
	}
	return r.Rival
}

// check returns an error unless the row can be drawn.
func (r compareRow) check(s Source) error {
	if r.Wrong > 0 {
		return fmt.Errorf("%w: %s: %s has %d wrong answers at %d hashes; its times mean nothing", ErrInput, s.Name, r.Rival, r.Wrong, r.Hashes)
	}
	if r.Rival == "" || r.Hashes < 1 || r.P50 <= 0 {
		return fmt.Errorf("%w: %s: a row without rival, hashes or p50_us", ErrInput, s.Name)
	}
	return nil
}

// bareSocket is the rival that only reads the bytes and answers.
const bareSocket = "floor"

func (r compareRow) role() role {
	if r.Rival == bareSocket {
		return bound
	}
	return measured
}

// rivalPercentiles returns a curve for each rival, of its rows of so many hashes.
func rivalPercentiles(s Source, rows []compareRow, hashes int) ([]curve, int, error) {
	if hashes == 0 {
		hashes = rows[0].Hashes
	}
	var curves []curve
	for _, r := range rows {
		if r.Hashes != hashes || !r.prepared() {
			continue
		}
		if err := r.check(s); err != nil {
			return nil, 0, err
		}
		if err := positive(s, "p99_us of "+r.Rival, r.P99); err != nil {
			return nil, 0, err
		}
		curves = append(curves, curve{name: r.name(), role: r.role(), points: []point{{x: 0.5, y: r.P50}, {x: 0.99, y: r.P99}}})
	}
	if len(curves) == 0 {
		return nil, 0, fmt.Errorf("%w: %s has no rows of %d hashes", ErrInput, s.Name, hashes)
	}
	return curves, hashes, nil
}
