package picture

import (
	"fmt"
	"slices"
)

// scaleReport is what scaling uses of a report of hitbench scale.
type scaleReport struct {
	load
	Shared bool `json:"shared_cores"` // client and server had the same cores
	Points []struct {
		Loops       int     `json:"loops"`
		Connections float64 `json:"connections"`
		PerSecond   float64 `json:"requests_per_s"`     // median of the rounds
		Min         float64 `json:"requests_per_s_min"` // 0 in reports of one round
		Max         float64 `json:"requests_per_s_max"`
	} `json:"points"`
}

// scaling draws throughput over connections, a curve for each number of loops.
func scaling(sources []Source, _ Options) (figure, error) {
	f := figure{title: "Throughput by connections and event loops"}
	p := panel{
		x: axis{"connections", log},
		y: axis{"throughput (lookups/s)", linear},
	}
	for _, s := range sources {
		r, err := decode[scaleReport](s)
		if err != nil {
			return f, err
		}
		if len(r.Points) == 0 {
			return f, lacks(s, "points", "hitbench scale --json")
		}
		byLoops := map[int]*curve{}
		var loops []int
		for i, at := range r.Points {
			if err := positive(s, fmt.Sprintf("a figure of point %d", i+1), float64(at.Loops), at.Connections, at.PerSecond); err != nil {
				return f, err
			}
			c := byLoops[at.Loops]
			if c == nil {
				c = &curve{name: labelled(s, sources, plural(at.Loops, "loop"))}
				byLoops[at.Loops] = c
				loops = append(loops, at.Loops)
			}
			c.points = append(c.points, point{x: at.Connections, y: at.PerSecond, low: at.Min, high: at.Max})
		}
		slices.Sort(loops)
		for _, n := range loops {
			p.curves = append(p.curves, *byLoops[n])
		}
		f.about = r.load.String()
		if r.Shared {
			f.about += "; client and server share the cores"
		}
	}
	if len(sources) > 1 {
		f.about = ""
	}
	f.panels = []panel{p}
	return f, nil
}
