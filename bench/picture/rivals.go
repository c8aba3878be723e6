package picture

import (
	"fmt"
	"strings"

	"github.com/hitline/hitline/bench/measure"
)

// comparison is what is used of a report of hitbench compare or floor.
type comparison struct {
	Rows []struct {
		Rival  string `json:"rival"`
		Way    string `json:"way"` // in which it was asked
		Hashes int    `json:"hashes"`
		Note   string `json:"note"`
		trips
		Hits   *trips `json:"hits"` // of those by anchors
		Misses *trips `json:"misses"`
	} `json:"rows"`
}

// trips are round trips.
type trips struct {
	P50    float64        `json:"p50_us"`
	P99    float64        `json:"p99_us"`
	Rounds measure.Spread `json:"p50_us_rounds"` // of the rounds' medians
}

// entry is what a rival took at a number of hashes.
type entry struct {
	name   string
	role   role
	hashes int
	trips
}

// rawSocket is the rival that only reads the bytes and answers.
const rawSocket = "floor"

// entries returns what was asked by bytes made before, and what by anchors.
func (c comparison) entries(s Source) ([]entry, error) {
	var list []entry
	for _, r := range c.Rows {
		e := entry{r.Rival, measured, r.Hashes, r.trips}
		switch {
		case r.Rival == rawSocket:
			e.name, e.role = "raw socket, no lookup", bound
		case strings.Contains(r.Note, "miss only"): // it was spared what the others do
			e.name += " (misses only)"
		}
		switch {
		case r.Rival == "" || r.Hashes < 1 || r.P50 <= 0:
			return nil, fmt.Errorf("%w: %s: a row without rival, hashes or p50_us", ErrInput, s.Name)
		case r.Way == "prepared":
			list = append(list, e)
		case r.Way == "anchored":
			for i, half := range []*trips{r.Hits, r.Misses} {
				if half != nil {
					list = append(list, entry{r.Rival + " by anchors, " + []string{"hits", "misses"}[i], measured, r.Hashes, *half})
				}
			}
		}
	}
	if len(list) == 0 {
		return nil, lacks(s, "rows of the way prepared", "hitbench compare --json or hitbench floor --json")
	}
	return list, nil
}

// percentiles returns a curve for each rival at so many hashes, or at as many as are first.
func (c comparison) percentiles(s Source, hashes int) (content, error) {
	list, err := c.entries(s)
	if err != nil {
		return content{}, err
	}
	if hashes == 0 {
		hashes = list[0].hashes
	}
	var curves []curve
	for _, e := range list {
		if e.hashes == hashes {
			curves = append(curves, curve{e.name, []point{{x: 0.5, y: e.P50}, {x: 0.99, y: e.P99}}, e.role})
		}
	}
	if len(curves) == 0 {
		return content{}, fmt.Errorf("%w: %s has no rows of %d hashes", ErrInput, s.Name, hashes)
	}
	return content{curves: [][]curve{curves}, setup: []string{fmt.Sprintf("round trips of %d hashes on one connection", hashes)}}, nil
}

// cost draws the round trip over the number of hashes, above that of a raw socket, of what was
// asked in the prepared way. The first source that has a rival at a number of hashes counts, so
// that what was measured side by side stays together.
var cost = kindOf("Round trip by number of hashes", []panel{
	over(axis{"hashes a lookup", log}, axis{"round trip (µs)", log}),
}, func(s Source, r comparison, _ Options) (content, error) {
	list, err := r.entries(s)
	var p panel
	for _, e := range list {
		p.add(curve{e.name, []point{withBar(float64(e.hashes), e.P50, e.Rounds)}, e.role}, true)
	}
	return content{curves: [][]curve{p.curves}, setup: []string{"median; one connection, one request at a time"}, join: true}, err
})
