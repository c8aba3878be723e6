package picture

import (
	"fmt"
	"path/filepath"
)

// capacityReport is what capacity uses of a report of hitbench index with
// capacities. Hashes cover 16 tokens, all else counts blocks of 512.
type capacityReport struct {
	Trace      string `json:"trace"`
	Requests   int    `json:"requests"`
	Hashes     int64  `json:"hashes"`
	Capacities []struct {
		Capacity float64  `json:"capacity"`
		Hitline  *float64 `json:"hitline"`
		LRU      *float64 `json:"lru"`
		TailLRU  *float64 `json:"tail_lru"`
		Belady   *float64 `json:"belady"`
	} `json:"capacities"`
}

// hashesPerBlock is how many hashes of 16 tokens a block of 512 has.
const hashesPerBlock = 32

// capacity draws the share of a trace's blocks that hit under rising bounds.
func capacity(sources []Source, _ Options) (figure, error) {
	f := figure{title: "Hit ratio by capacity"}
	p := panel{
		x: axis{"capacity (blocks of 512 tokens)", log},
		y: axis{"blocks that hit (%)", linear},
	}
	for _, s := range sources {
		r, err := decode[capacityReport](s)
		if err != nil {
			return f, err
		}
		if len(r.Capacities) == 0 || r.Hashes < hashesPerBlock {
			return f, lacks(s, "capacities", "hitbench index --trace FILE --capacities N,… --json")
		}
		curves := []curve{
			{name: labelled(s, sources, "clairvoyant, the best possible"), role: bound}, {name: labelled(s, sources, "hitline")},
			{name: labelled(s, sources, "LRU, tail first")}, {name: labelled(s, sources, "LRU")},
		}
		blocks := float64(r.Hashes) / hashesPerBlock
		for _, row := range r.Capacities {
			if err := positive(s, "a capacity", row.Capacity); err != nil {
				return f, err
			}
			for i, hits := range []*float64{row.Belady, row.Hitline, row.TailLRU, row.LRU} {
				if hits != nil {
					curves[i].points = append(curves[i].points, point{x: row.Capacity, y: 100 * *hits / blocks})
				}
			}
		}
		for _, c := range curves {
			if len(c.points) > 0 {
				p.curves = append(p.curves, c)
			}
		}
		f.about = fmt.Sprintf("%s: %d requests, %.0f blocks", filepath.Base(r.Trace), r.Requests, blocks)
	}
	if len(sources) > 1 {
		f.about = ""
	}
	f.panels = []panel{p}
	return f, nil
}
