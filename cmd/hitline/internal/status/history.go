package status

import (
	"slices"
	"time"

	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/tokens"
)

// sums are counters of a pool, or what they have grown by.
type sums struct {
	tokens  [numPlaces]int64
	lookups int64
	prompts int64
}

// sumsOf returns the counters of a pool.
func sumsOf(stat *api.Stat) (s sums) {
	s.lookups = stat.Lookups
	if t := stat.PoolTokens; t != nil {
		s.prompts = t.Prompts
		for p := range tokens.NumPlaces {
			s.tokens[p] = t.Tokens[p.String()]
		}
	}
	return s
}

func (s *sums) add(other sums) {
	for i, n := range other.tokens {
		s.tokens[i] += n
	}
	s.lookups += other.lookups
	s.prompts += other.prompts
}

// minus returns what counters have grown by since before. Those of a pool that was made anew count from 0.
func (s sums) minus(before sums) sums {
	if s.lookups < before.lookups || s.prompts < before.prompts {
		return s
	}
	for i, n := range before.tokens {
		s.tokens[i] -= n
	}
	s.lookups -= before.lookups
	s.prompts -= before.prompts
	return s
}

// A history has steps of ten seconds for an hour, and of ten minutes for a day.
const (
	fineStep    = 10 * time.Second
	coarseStep  = 10 * time.Minute
	fineSteps   = int(time.Hour / fineStep)
	coarseSteps = int(24 * time.Hour / coarseStep)
)

// history is what a pool has counted of late.
type history struct{ fine, coarse ring }

// ring has the sums of the latest steps.
type ring struct {
	sums   []sums
	latest int64 // step
	seen   int   // steps since the first, at most all
}

func newHistory() *history {
	return &history{fine: ring{sums: make([]sums, fineSteps)}, coarse: ring{sums: make([]sums, coarseSteps)}}
}

// add adds what counters have grown by up to a time since the server's start.
func (h *history) add(at time.Duration, grown sums) {
	h.fine.add(int64(at/fineStep), grown)
	h.coarse.add(int64(at/coarseStep), grown)
}

func (r *ring) add(step int64, grown sums) {
	if r.seen == 0 {
		r.latest, r.seen = step, 1
	}
	for r.latest < step {
		r.latest++
		r.sums[r.latest%int64(len(r.sums))] = sums{}
		r.seen = min(r.seen+1, len(r.sums))
	}
	r.sums[step%int64(len(r.sums))].add(grown)
}

// over returns the sums of the latest steps in d, and how long these are.
func (h *history) over(d time.Duration) (sums, time.Duration) {
	if d <= time.Hour {
		return h.fine.over(d, fineStep)
	}
	return h.coarse.over(d, coarseStep)
}

func (r *ring) over(d, step time.Duration) (all sums, seen time.Duration) {
	n := min(int(d/step), r.seen)
	for i := range int64(n) {
		all.add(r.sums[(r.latest-i)%int64(len(r.sums))])
	}
	return all, time.Duration(n) * step
}

// halfMinutes returns the sums of each half minute of the last hour, the oldest first. There are none in the first minutes,
// of which the bars tell as much.
func (h *history) halfMinutes() []sums {
	const steps = int64(30 * time.Second / fineStep)
	r, parts := &h.fine, make([]sums, fineSteps/int(steps))
	if r.seen < int(5*time.Minute/fineStep) {
		return nil
	}
	for step := r.latest - int64(r.seen) + 1; step <= r.latest; step++ {
		if part := len(parts) - 1 - int(r.latest/steps-step/steps); part >= 0 {
			parts[part].add(r.sums[step%int64(len(r.sums))])
		}
	}
	return parts
}

// maxHistories is how many pools have a history of their own: those with most lookups.
const maxHistories = 8

// histories are those of a server: of all pools together, and of the busiest by name.
type histories struct {
	all     *history
	ofPools map[string]*history
	total   sums            // since the start
	last    map[string]sums // counters, by pool
}

func newHistories() *histories {
	return &histories{all: newHistory(), ofPools: map[string]*history{}, last: map[string]sums{}}
}

// add adds the counters of all pools. Those of pools that have gone are forgotten, not what they counted.
func (h *histories) add(at time.Duration, stats map[string]api.Stat) {
	names := make([]string, 0, len(stats))
	for name := range stats {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return int(stats[b].Lookups - stats[a].Lookups) })
	kept := map[string]sums{}
	var all sums
	for i, name := range names {
		stat := stats[name]
		counters := sumsOf(&stat)
		grown := counters.minus(h.last[name])
		kept[name] = counters
		all.add(grown)
		switch own := h.ofPools[name]; {
		case i >= maxHistories:
			delete(h.ofPools, name)
		case own == nil:
			h.ofPools[name] = newHistory()
			fallthrough
		default:
			h.ofPools[name].add(at, grown)
		}
	}
	for name := range h.ofPools {
		if _, ok := stats[name]; !ok {
			delete(h.ofPools, name)
		}
	}
	h.all.add(at, all)
	h.total.add(all)
	h.last = kept
}
