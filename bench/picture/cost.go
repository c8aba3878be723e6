package picture

import (
	"cmp"
	"slices"
)

// costReport is what cost uses of a report of hitbench floor, or of compare.
type costReport struct {
	Hashes  asGiven `json:"hashes"` // a list in comparisons, which is not used
	Floor   float64 `json:"floor_p50_us"`
	Hitline float64 `json:"hitline_p50_us"`

	Rows []compareRow `json:"rows"`
}

// cost draws the round trip over the number of hashes, above that of a raw socket.
func cost(sources []Source, _ Options) (figure, error) {
	bare := curve{name: "raw socket, reads and answers 4 bytes", role: bound}
	ours := curve{name: "hitline"}
	var rivals []compareRow
	for _, s := range sources {
		r, err := decode[costReport](s)
		if err != nil {
			return figure{}, err
		}
		for _, row := range r.Rows {
			if err := row.check(s); err != nil {
				return figure{}, err
			}
		}
		rivals = append(rivals, r.Rows...)
		if len(r.Rows) > 0 {
			continue
		}
		hashes, err := r.Hashes.number()
		if err != nil || r.Floor == 0 {
			return figure{}, lacks(s, "hashes and floor_p50_us", "hitbench floor --json or hitbench compare --json")
		}
		if err := positive(s, "hashes, floor_p50_us or hitline_p50_us", hashes, r.Floor, r.Hitline); err != nil {
			return figure{}, err
		}
		bare.points = append(bare.points, point{x: hashes, y: r.Floor})
		ours.points = append(ours.points, point{x: hashes, y: r.Hitline})
	}
	var curves []curve
	if len(ours.points) > 0 {
		curves = append(curves, ours)
	}
	curves = addRivals(curves, rivals)
	if len(bare.points) > 0 {
		curves = append(curves, bare)
	}
	for _, c := range curves {
		slices.SortFunc(c.points, func(a, b point) int { return cmp.Compare(a.x, b.x) })
	}
	return figure{
		title: "Round trip by number of hashes",
		about: "median; one connection, one request at a time",
		panels: []panel{{
			x: axis{"hashes a lookup", log}, y: axis{"round trip (µs)", log}, curves: curves,
		}},
	}, nil
}

// addRivals appends a curve for each rival in the order of the rows. Rows of
// hitline and of the raw socket add nothing where floor has measured those.
func addRivals(curves []curve, rows []compareRow) []curve {
	measured := len(curves) > 0
	at := map[string]int{}
	for _, r := range rows {
		if measured && (r.Rival == "hitline" || r.Rival == bareSocket) {
			continue
		}
		i, ok := at[r.Rival]
		if !ok {
			i = len(curves)
			at[r.Rival] = i
			curves = append(curves, curve{name: r.Rival, role: r.role()})
		}
		p := point{x: float64(r.Hashes), y: r.P50}
		if r.Min > 0 && r.Min < r.Max {
			p.low, p.high = r.Min, r.Max
		}
		curves[i].points = append(curves[i].points, p)
	}
	return curves
}
