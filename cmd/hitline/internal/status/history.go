package status

import (
	"sync"
	"time"

	"github.com/hitline/hitline/lookup/tokens"
)

// Sums are counters of a pool, or what they have grown by.
type Sums struct {
	Tokens  tokens.Counts
	Lookups int64
	Prompts int64
}

func (s *Sums) add(other Sums) {
	for p, n := range other.Tokens {
		s.Tokens[p] += n
	}
	s.Lookups += other.Lookups
	s.Prompts += other.Prompts
}

// minus returns by how much s is above before. Counters that began anew count from 0.
func (s Sums) minus(before Sums) Sums {
	if s.Lookups < before.Lookups || s.Tokens.Total() < before.Tokens.Total() {
		return s
	}
	for p := range s.Tokens {
		s.Tokens[p] -= before.Tokens[p]
	}
	s.Lookups -= before.Lookups
	s.Prompts -= before.Prompts
	return s
}

const (
	// Steps of the history: by ten seconds for an hour, by ten minutes for a day.
	fineStep    = 10 * time.Second
	coarseStep  = 10 * time.Minute
	fineSteps   = int(time.Hour / fineStep)
	coarseSteps = int(24 * time.Hour / coarseStep)
)

// history is what a pool has counted in the last hour and the last day. It begins when the pool is first seen.
type history struct {
	last   Sums // counters
	fine   ring
	coarse ring
}

// ring has the sums of the last steps.
type ring struct {
	steps []Sums
	step  int64 // number of the latest one since the clock's zero
	seen  int   // steps since the first, at most all
}

// add adds sums to the step of a time. Steps in between were empty.
func (r *ring) add(step int64, sums Sums) {
	if r.seen == 0 {
		r.step, r.seen = step, 1
	}
	for ; r.step < step; r.step++ {
		r.seen = min(r.seen+1, len(r.steps))
		r.steps[int(r.step+1)%len(r.steps)] = Sums{}
	}
	r.steps[int(step)%len(r.steps)].add(sums)
}

// last returns the sums of the last n steps, and how many of these there are.
func (r *ring) last(n int) (sums Sums, steps int) {
	steps = min(n, r.seen)
	for i := range steps {
		sums.add(r.steps[int(r.step-int64(i))%len(r.steps)])
	}
	return sums, steps
}

func newHistory() *history {
	return &history{fine: ring{steps: make([]Sums, fineSteps)}, coarse: ring{steps: make([]Sums, coarseSteps)}}
}

// add adds what counters have grown by.
func (h *history) add(now time.Duration, counters Sums) {
	grown := counters.minus(h.last)
	h.last = counters
	h.fine.add(int64(now/fineStep), grown)
	h.coarse.add(int64(now/coarseStep), grown)
}

// over returns the sums of the last d, an hour or less or up to a day, and how much of that time was seen.
func (h *history) over(d time.Duration) (Sums, time.Duration) {
	if d <= time.Hour {
		sums, steps := h.fine.last(int(d / fineStep))
		return sums, time.Duration(steps) * fineStep
	}
	sums, steps := h.coarse.last(int(d / coarseStep))
	return sums, time.Duration(steps) * coarseStep
}

// maxHistories is how many pools have a history of their own: the busiest. The others share one.
const maxHistories = 8

// Histories remember what pools have counted of late. Safe for concurrent use.
type Histories struct {
	mu    sync.Mutex
	all   *history            // the sum of all pools
	pools map[string]*history // by name
	rest  *history
}
