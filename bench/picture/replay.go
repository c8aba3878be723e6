package picture

import (
	"fmt"
	"path/filepath"
)

// replayReport is what replay uses of a report of hitbench replay.
type replayReport struct {
	Trace    string  `json:"trace"`
	Requests int     `json:"requests"`
	Speed    float64 `json:"speed"` // times as fast as recorded; 0 flat out
	Windows  []struct {
		Start    float64 `json:"start_s"`
		Requests int     `json:"requests"`
		HitRatio float64 `json:"hit_ratio"` // 0 to 1
		P50      float64 `json:"p50_us"`
		P99      float64 `json:"p99_us"`
	} `json:"windows"`
	Mismatches int `json:"mismatches"`
}

// replay draws the hit ratio and the latency over the time of a replay. Windows
// without requests are left out.
func replay(sources []Source, _ Options) (figure, error) {
	f := figure{title: "A trace over time"}
	hits := panel{y: axis{"blocks that hit (%)", hundred}}
	times := panel{y: axis{"latency (µs)", log}}
	for _, s := range sources {
		r, err := decode[replayReport](s)
		if err != nil {
			return f, err
		}
		if r.Mismatches > 0 {
			return f, fmt.Errorf("%w: %s has %d wrong answers; its times mean nothing", ErrInput, s.Name, r.Mismatches)
		}
		hit := curve{name: labelled(s, sources, "hit ratio")}
		p50, p99 := curve{name: labelled(s, sources, "p50")}, curve{name: labelled(s, sources, "p99")}
		for i, w := range r.Windows {
			if w.Requests == 0 {
				continue
			}
			if err := positive(s, fmt.Sprintf("a latency of window %d", i+1), w.P50, w.P99); err != nil {
				return f, err
			}
			hit.points = append(hit.points, point{x: w.Start, y: 100 * w.HitRatio})
			p50.points = append(p50.points, point{x: w.Start, y: w.P50})
			p99.points = append(p99.points, point{x: w.Start, y: w.P99})
		}
		if len(hit.points) == 0 {
			return f, lacks(s, "windows with requests", "hitbench replay --json")
		}
		hits.curves = append(hits.curves, hit)
		times.curves = append(times.curves, p50, p99)
		f.about = fmt.Sprintf("%s: %d requests, %s", filepath.Base(r.Trace), r.Requests, pace(r.Speed))
	}
	if len(sources) > 1 {
		f.about = ""
	}
	hits.x = hits.inTime()
	times.x = times.inTime()
	f.panels = []panel{hits, times}
	return f, nil
}

// pace says how fast a trace was replayed.
func pace(speed float64) string {
	switch speed {
	case 0:
		return "one after the other, flat out"
	case 1:
		return "as fast as recorded"
	}
	return fmt.Sprintf("%g times as fast as recorded", speed)
}

// inTime returns the axis of the panel's times, which are in seconds, and brings
// them to its unit.
func (p panel) inTime() axis {
	_, high := p.extent()
	unit, name := 1.0, "s"
	switch {
	case high.x > 3*3600:
		unit, name = 3600, "h"
	case high.x > 600:
		unit, name = 60, "min"
	}
	for _, c := range p.curves {
		for i := range c.points {
			c.points[i].x /= unit
		}
	}
	return axis{"time (" + name + ")", linear}
}
