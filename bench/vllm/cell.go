package vllm

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
)

// The two that are asked.
const (
	vllm    = "vllm"
	hitline = "hitline"
)

// seed makes the chains of a shape others than those of all other shapes.
func (c *cell) seed() string { return c.shape.String() + string(c.presence) }

// cell measures one shape and presence.
type cell struct {
	m        *meter
	shape    Shape
	presence Presence
	engines  []*role

	asked  int // keys of a lookup of the release
	rounds map[string][]round
	wrong  int
	before hitlineStat
	after  hitlineStat
}

// round is what all engines measured in one round.
type round struct {
	micros []float64 // of each lookup, sorted
	hits   map[string]any
}

// hitlineStat are counters of hitline.
type hitlineStat struct {
	Lookups int64 `json:"lookups"`
	Rounds  int64 `json:"backend_rounds"`
	Keys    int64 `json:"backend_keys"`
	Shared  int64 `json:"backend_shared"`
}

// put is a request to store the keys of a chain.
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
	for _, name := range names { // connections and caches
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
	return c.stat(ctx, &c.after)
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
		if err := c.m.store.do(ctx, 0, request, &reply); err != nil {
			return err
		}
		c.asked = reply.Asked
	}
	return c.each(func(_ int, r *role) error {
		return r.do(ctx, 0, prepare{"prepare", c.seed(), chains, s.Hashes, s.tokens()}, &struct{}{})
	})
}

// each calls do for all engines at the same time.
func (c *cell) each(do func(i int, r *role) error) error {
	var group errgroup.Group
	for i, r := range c.engines {
		group.Go(func() error { return do(i, r) })
	}
	return group.Wait()
}

// ask has all engines ask one of the two. Each begins at another chain.
func (c *cell) ask(ctx context.Context, name string, number int, took time.Duration) (round, error) {
	replies := make([]struct {
		Micros []float64
		Hits   map[string]any
	}, len(c.engines))
	err := c.each(func(i int, r *role) error {
		return r.do(ctx, took, ask{"ask", name, number + i, took.Seconds()}, &replies[i])
	})
	result := round{hits: map[string]any{}}
	for _, reply := range replies {
		result.micros = append(result.micros, reply.Micros...)
		for chain, hit := range reply.Hits {
			if known, ok := result.hits[chain]; ok && !reflect.DeepEqual(known, hit) {
				c.note(name, chain, known, hit)
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
			c.note("hitline beside vllm", chain, hit, our)
		}
	}
}

func (c *cell) note(who, chain string, want, got any) {
	c.wrong++
	c.m.o.OnNote(fmt.Sprintf("%v, %s stored, chain %s: %s: hit and tail boundaries %v and %v", c.shape, c.presence, chain, who, want, got))
}

// stat reads the counters of hitline.
func (c *cell) stat(ctx context.Context, stat *hitlineStat) error {
	return c.engines[0].do(ctx, 0, map[string]string{"do": "stat"}, stat)
}
