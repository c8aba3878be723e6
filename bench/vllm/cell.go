package vllm

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/process"
)

// Names of the two that are compared.
const (
	vllm    = "vllm"
	hitline = "hitline"
)

// cell measures one shape and presence.
type cell struct {
	o       Options
	store   *process.Child
	engines []*process.Child
	seed    string             // differs for each seed, shape and presence, and so do the chains made of it
	rounds  map[string][]round // by name of the two
	row     Row
}

func newCell(o Options, s Shape, p Presence) *cell {
	return &cell{o: o, seed: fmt.Sprintf("%d, %v, %s", o.Seed, s, p), rounds: map[string][]round{}, row: Row{Shape: s, Stored: p}}
}

// round is what all engines measured in one round.
type round struct {
	micros []float64      // duration of each lookup, sorted
	hits   map[string]any // hit and tail boundaries, by chain
}

// hitlineStat holds counters of hitline since its start.
type hitlineStat struct {
	Lookups int64 `json:"lookups"`
	Rounds  int64 `json:"backend_rounds"`
	Keys    int64 `json:"backend_keys"`
	Shared  int64 `json:"backend_shared"`

	Errors   int64 `json:"backend_errors"`
	Timeouts int64 `json:"backend_timeouts"`
	Rejected int64 `json:"backend_rejected"`
}

// request is one of over_master.py: what to do, and with what.
type request map[string]any

func (c *cell) run(ctx context.Context) error {
	if err := c.storeChains(ctx); err != nil {
		return err
	}
	names := []string{vllm, hitline}
	for _, name := range names { // one lookup each, to connect and to fill caches
		if _, err := c.ask(ctx, name, 0, 0); err != nil {
			return err
		}
	}
	var before, after hitlineStat
	stat := request{"do": "stat"}
	if err := c.engines[0].Do(ctx, 0, stat, &before); err != nil {
		return err
	}
	for number := range c.o.Rounds {
		for _, name := range names {
			r, err := c.ask(ctx, name, number, c.o.Cell/time.Duration(c.o.Rounds))
			if err != nil {
				return err
			}
			c.rounds[name] = append(c.rounds[name], r)
		}
		slices.Reverse(names)
		c.compare(number)
	}
	if err := c.engines[0].Do(ctx, 0, stat, &after); err != nil {
		return err
	}
	return c.finish(before, after)
}

// finish completes the row, with the counters of hitline before and after the rounds. It fails if
// the store failed meanwhile. A lookup of either then counts as a hit of 0: where that is the
// answer, nothing else shows it, and the times are of no use.
func (c *cell) finish(before, after hitlineStat) error {
	if n := after.Errors + after.Timeouts + after.Rejected - before.Errors - before.Timeouts - before.Rejected; n > 0 {
		return fmt.Errorf("%w: the master, or some of its answers: %d calls or lookups of hitline failed", measure.ErrLost, n)
	}
	r, theirs, ours := &c.row, c.rounds[vllm], c.rounds[hitline]
	r.VLLM, r.Hitline = times(theirs), times(ours)
	r.P50Ratio, r.P99Ratio = ratio(theirs, ours, 50), ratio(theirs, ours, 99)
	lookups := float64(after.Lookups - before.Lookups)
	r.HitlineKeys = float64(after.Keys-before.Keys) / lookups
	r.HitlineRounds = float64(after.Rounds-before.Rounds) / lookups
	r.HitlineShared = float64(after.Shared-before.Shared) / lookups
	return nil
}

// storeChains stores keys of each chain, those of the first stored hashes without those of the
// first skipped ones, and has the engines make the chains.
func (c *cell) storeChains(ctx context.Context) error {
	s := c.row.Shape
	stored, skipped := s.stored(c.row.Stored)
	chains := make([]int, s.numChains())
	for i := range chains {
		chains[i] = i
		var reply struct{ Asked int }
		put := request{"do": "put", "seed": c.seed, "chain": i, "hashes": s.Hashes, "tokens": s.tokens(), "stored": stored, "skipped": skipped}
		if err := c.store.Do(ctx, 0, put, &reply); err != nil {
			return err
		}
		c.row.VLLMKeys = reply.Asked
	}
	return c.each(func(_ int, r *process.Child) error {
		return r.Do(ctx, 0, request{"do": "prepare", "seed": c.seed, "chains": chains, "hashes": s.Hashes, "tokens": s.tokens()}, &struct{}{})
	})
}

// each calls do for all engines at the same time.
func (c *cell) each(do func(i int, r *process.Child) error) error {
	var group errgroup.Group
	for i, r := range c.engines {
		group.Go(func() error { return do(i, r) })
	}
	return group.Wait()
}

// ask has all engines ask one of the two for the given duration, at least once. Engine i begins
// at chain number+i.
func (c *cell) ask(ctx context.Context, name string, number int, duration time.Duration) (round, error) {
	replies := make([]struct {
		Micros  []float64
		Hits    map[string]any
		Changed [][3]any // a chain, its first answer, and another one
	}, len(c.engines))
	err := c.each(func(i int, r *process.Child) error {
		return r.Do(ctx, duration, request{"do": "ask", "rival": name, "first": number + i, "seconds": duration.Seconds()}, &replies[i])
	})
	result := round{hits: map[string]any{}}
	for _, reply := range replies {
		result.micros = append(result.micros, reply.Micros...)
		for _, changed := range reply.Changed {
			c.reportWrong(name+", twice", fmt.Sprint(changed[0]), changed[1], changed[2])
		}
		for chain, hit := range reply.Hits {
			if known, ok := result.hits[chain]; ok && !reflect.DeepEqual(known, hit) {
				c.reportWrong(name+", two engines", chain, known, hit)
			}
			result.hits[chain] = hit
		}
	}
	slices.Sort(result.micros)
	return result, err
}

// compare compares the answers of the two in one round.
func (c *cell) compare(number int) {
	theirs, ours := c.rounds[vllm][number].hits, c.rounds[hitline][number].hits
	for chain, hit := range theirs {
		if our, ok := ours[chain]; ok && !reflect.DeepEqual(hit, our) {
			c.reportWrong("vllm and hitline", chain, hit, our)
		}
	}
}

// reportWrong counts two answers for a chain that differ, and says where they are from.
func (c *cell) reportWrong(from, chain string, one, other any) {
	c.row.Wrong++
	c.o.OnNote(fmt.Sprintf("%v, %s stored, chain %s: %s: hit and tail boundaries %v and %v",
		c.row.Shape, c.row.Stored, chain, from, one, other))
}
