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

	Anchored *struct { // hitline was asked by anchors
		Hit  float64 `json:"hit_p50_us"`
		Miss float64 `json:"miss_p50_us"`
	} `json:"anchored"`

	Rows []compareRow `json:"rows"`
}

// cost draws the round trip over the number of hashes, above that of a raw socket.
// What a comparison has measured side by side goes first, of that what was asked in the
// prepared way, as hitbench floor asks; reports of floor add the numbers of hashes that it
// lacks.
func cost(sources []Source, _ Options) (figure, error) {
	var rows, more []compareRow
	for _, s := range sources {
		r, err := decode[costReport](s)
		if err != nil {
			return figure{}, err
		}
		for _, row := range r.Rows {
			if err := row.check(s); err != nil {
				return figure{}, err
			}
			if row.prepared() {
				rows = append(rows, row)
			}
		}
		if len(r.Rows) > 0 {
			continue
		}
		sides, err := r.sides(s)
		if err != nil {
			return figure{}, err
		}
		more = append(more, sides...)
	}
	for _, row := range more {
		if !slices.ContainsFunc(rows, func(r compareRow) bool { return r.Rival == row.Rival && r.Hashes == row.Hashes }) {
			rows = append(rows, row)
		}
	}
	return figure{
		title:  "Round trip by number of hashes",
		about:  "median; one connection, one request at a time",
		panels: []panel{{x: axis{"hashes a lookup", log}, y: axis{"round trip (µs)", log}, curves: rivalCosts(rows)}},
	}, nil
}

// sides returns a report of floor as rows.
func (r costReport) sides(s Source) ([]compareRow, error) {
	hashes, err := r.Hashes.number()
	if err != nil || r.Floor == 0 {
		return nil, lacks(s, "hashes and floor_p50_us", "hitbench floor --json or hitbench compare --json")
	}
	if err := positive(s, "hashes, floor_p50_us or hitline_p50_us", hashes, r.Floor, r.Hitline); err != nil {
		return nil, err
	}
	rows := []compareRow{{Rival: "hitline", Hashes: int(hashes), P50: r.Hitline}}
	if a := r.Anchored; a != nil {
		if err := positive(s, "hit_p50_us or miss_p50_us", a.Hit, a.Miss); err != nil {
			return nil, err
		}
		rows = []compareRow{
			{Rival: "hitline by anchors, hits", Hashes: int(hashes), P50: a.Hit},
			{Rival: "hitline by anchors, misses", Hashes: int(hashes), P50: a.Miss},
		}
	}
	return append(rows, compareRow{Rival: bareSocket, Hashes: int(hashes), P50: r.Floor}), nil
}

// rivalCosts returns a curve for each rival, in the order of the rows; the raw
// socket last.
func rivalCosts(rows []compareRow) []curve {
	var curves []curve
	for _, r := range rows {
		i := slices.IndexFunc(curves, func(c curve) bool { return c.name == r.name() })
		if i < 0 {
			i = len(curves)
			curves = append(curves, curve{name: r.name(), role: r.role()})
		}
		p := point{x: float64(r.Hashes), y: r.P50}
		if r.Min > 0 && r.Min < r.Max {
			p.low, p.high = r.Min, r.Max
		}
		curves[i].points = append(curves[i].points, p)
	}
	slices.SortStableFunc(curves, func(a, b curve) int { return cmp.Compare(a.role, b.role) })
	for _, c := range curves {
		slices.SortFunc(c.points, func(a, b point) int { return cmp.Compare(a.x, b.x) })
	}
	return curves
}
