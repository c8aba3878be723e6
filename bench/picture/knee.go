package picture

import "fmt"

// stepsReport is what knee uses of a report of hitbench run with several rates.
type stepsReport struct {
	load
	Steps []struct {
		Rate  float64 `json:"rate"` // offered, lookups a second
		Done  float64 `json:"requests_per_s"`
		P50   float64 `json:"p50_us"`
		P99   float64 `json:"p99_us"`
		Wrong int     `json:"wrong"`
	} `json:"steps"`
}

// kept is the share of the offered rate below which a step has fallen short.
const kept = 0.98

// knee draws latency over throughput at rising load. Where less was achieved than
// offered the points have rings.
func knee(sources []Source, _ Options) (figure, error) {
	f := figure{title: "Latency at rising load"}
	p := panel{
		x: axis{"achieved (lookups/s)", log},
		y: axis{"latency (µs)", log},
	}
	short := curve{name: fmt.Sprintf("less than %.0f %% of the offered rate", 100*kept), role: rings}
	for _, s := range sources {
		r, err := decode[stepsReport](s)
		if err != nil {
			return f, err
		}
		if len(r.Steps) < 2 || r.Steps[0].Rate == 0 {
			return f, lacks(s, "steps of several rates", "hitbench run --rate R1,R2,… --json")
		}
		p50 := curve{name: labelled(s, sources, "p50")}
		p99 := curve{name: labelled(s, sources, "p99")}
		for i, step := range r.Steps {
			if step.Wrong > 0 {
				return f, fmt.Errorf("%w: %s: step %d has %d wrong answers; its times mean nothing", ErrInput, s.Name, i+1, step.Wrong)
			}
			if err := positive(s, fmt.Sprintf("a figure of step %d", i+1), step.Rate, step.Done, step.P50, step.P99); err != nil {
				return f, err
			}
			low, high := point{x: step.Done, y: step.P50}, point{x: step.Done, y: step.P99}
			p50.points, p99.points = append(p50.points, low), append(p99.points, high)
			if step.Done < kept*step.Rate {
				short.points = append(short.points, low, high)
			}
		}
		p.curves = append(p.curves, p50, p99)
		f.about = r.load.String()
	}
	if len(sources) > 1 {
		f.about = ""
	}
	if len(short.points) > 0 {
		p.curves = append(p.curves, short)
	}
	f.panels = []panel{p}
	return f, nil
}
