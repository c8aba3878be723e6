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

// seed returns a text that differs for each seed, shape and presence, and so do the chains made
// of it.
func (c *cell) seed() string { return fmt.Sprintf("%d, %v, %s", c.m.o.Seed, c.shape, c.presence) }

// cell measures one shape and presence.
type cell struct {
	m        *meter
	shape    Shape
	presence Presence
	engines  []*process.Child

	asked  int                // keys that the release asks for in one lookup
	rounds map[string][]round // by name of the two
	wrong  int                // chains of a round whose answers differ
	before hitlineStat        // when the first round begins
	after  hitlineStat        // when the last round has ended
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

// failed returns how often the store was of no use to a lookup.
func (s hitlineStat) failed() int64 { return s.Errors + s.Timeouts + s.Rejected }

// put is a request to store keys of a chain: those of the first Stored hashes, without those of
// the first Skipped ones.
type put struct {
	Do      string `json:"do"`
	Seed    string `json:"seed"`
	Chain   int    `json:"chain"`
	Hashes  int    `json:"hashes"`
	Tokens  int    `json:"tokens"`
	Stored  int    `json:"stored"`
	Skipped int    `json:"skipped"`
}

// prepare is a request to make the chains of the lookups that follow.
type prepare struct {
	Do     string `json:"do"`
	Seed   string `json:"seed"`
	Chains []int  `json:"chains"`
	Hashes int    `json:"hashes"`
	Tokens int    `json:"tokens"`
}

// ask is a request to look up the chains in turn, from the first on, for some time.
type ask struct {
	Do      string  `json:"do"`
	Rival   string  `json:"rival"`
	First   int     `json:"first"`
	Seconds float64 `json:"seconds"`
}

func (c *cell) run(ctx context.Context) error {
	if err := c.storeChains(ctx); err != nil {
		return err
	}
	c.rounds = map[string][]round{}
	names := []string{vllm, hitline}
	for _, name := range names { // one lookup each, to connect and to fill caches
		if _, err := c.ask(ctx, name, 0, 0); err != nil {
			return err
		}
	}
	if err := c.stat(ctx, &c.before); err != nil {
		return err
	}
	for number := range c.m.o.Rounds {
		for _, name := range names {
			r, err := c.ask(ctx, name, number, c.m.o.Cell/time.Duration(c.m.o.Rounds))
			if err != nil {
				return err
			}
			c.rounds[name] = append(c.rounds[name], r)
		}
		slices.Reverse(names)
		c.compare(number)
	}
	if err := c.stat(ctx, &c.after); err != nil {
		return err
	}
	return c.checkStore()
}

// checkStore fails if the store failed during the rounds. A lookup of either then counts as a
// hit of 0: where that is the answer, nothing else shows it, and the times are of no use.
func (c *cell) checkStore() error {
	if n := c.after.failed() - c.before.failed(); n > 0 {
		return fmt.Errorf("%w: the master, or some of its answers: %d calls or lookups of hitline failed", measure.ErrLost, n)
	}
	return nil
}

// storeChains stores the keys, and has the engines make the chains.
func (c *cell) storeChains(ctx context.Context) error {
	s := c.shape
	stored, skipped := s.stored(c.presence)
	chains := make([]int, s.numChains())
	for i := range chains {
		chains[i] = i
		var reply struct{ Asked int }
		request := put{"put", c.seed(), i, s.Hashes, s.tokens(), stored, skipped}
		if err := c.m.store.Do(ctx, 0, request, &reply); err != nil {
			return err
		}
		c.asked = reply.Asked
	}
	return c.each(func(_ int, r *process.Child) error {
		return r.Do(ctx, 0, prepare{"prepare", c.seed(), chains, s.Hashes, s.tokens()}, &struct{}{})
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
		return r.Do(ctx, duration, ask{"ask", name, number + i, duration.Seconds()}, &replies[i])
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
	c.wrong++
	c.m.o.OnNote(fmt.Sprintf("%v, %s stored, chain %s: %s: hit and tail boundaries %v and %v",
		c.shape, c.presence, chain, from, one, other))
}

// stat reads the counters of hitline.
func (c *cell) stat(ctx context.Context, stat *hitlineStat) error {
	return c.engines[0].Do(ctx, 0, map[string]string{"do": "stat"}, stat)
}
