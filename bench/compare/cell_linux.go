package compare

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"
)

const (
	// turns is how many slices a round has of each rival, at most.
	turns = 8
	// maxPerRound bounds the requests of a rival and round.
	maxPerRound = 20_000
	// maxWarm bounds what is asked before the rounds.
	maxWarm = 200 * time.Millisecond
	// garbage is how many bytes client libraries may leave before they are collected.
	garbage = 256 << 20
)

// cell is one number of hashes.
type cell struct {
	o      Options
	hashes int
	lanes  []*lane
	live   uint64 // bytes of the heap after the last collection
}

// open stores the chains with all rivals and connects to them.
func (c *cell) open(ctx context.Context, load *workload, rivals []*rival) error {
	for i, r := range rivals {
		c.step("store", i, len(rivals))
		a, err := r.open(ctx, load)
		if err != nil {
			return fmt.Errorf("%s, %d hashes: %w", r.name, c.hashes, err)
		}
		// They begin at different places, so that no request is still in a cache
		// because another rival has just been asked the same.
		c.lanes = append(c.lanes, &lane{rival: r, asker: a, load: load, at: i * load.len() / len(rivals)})
	}
	load.cut(c.o.HitShare, c.o.MissAt, c.o.HashTokens)
	for _, l := range c.lanes {
		if err := l.asker.prepare(); err != nil {
			return fmt.Errorf("%s, %d hashes: %w", l.rival.name, c.hashes, err)
		}
	}
	return nil
}

func (c *cell) close() {
	for _, l := range c.lanes {
		l.asker.close()
	}
}

func (c *cell) step(what string, done, total int) {
	c.o.OnStep(fmt.Sprintf("%d hashes: %s", c.hashes, what), done, total)
}

// run makes all rounds.
func (c *cell) run(ctx context.Context) error {
	c.collect()
	for i, l := range c.lanes {
		c.step("warm up", i, len(c.lanes))
		if err := c.warm(ctx, l); err != nil {
			return err
		}
	}
	for round := range c.o.Rounds {
		c.step("rounds", round, c.o.Rounds)
		if err := c.round(ctx, round); err != nil {
			return err
		}
	}
	return nil
}

// warm asks a rival without counting, for half the time of a round, and tells from
// it how many requests a round shall have. The first one is not representative.
func (c *cell) warm(ctx context.Context, l *lane) error {
	perRound := c.o.Cell / time.Duration(c.o.Rounds)
	if _, err := l.ask(ctx); err != nil {
		return err
	}
	spent, times := time.Duration(0), []time.Duration{}
	for len(times) < 2 || spent < min(perRound/2, maxWarm) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		took, err := l.ask(ctx)
		if err != nil {
			return err
		}
		spent += took
		times = append(times, took)
	}
	c.sweep()
	slices.Sort(times)
	usual := max(times[(len(times)-1)/2], 1) // the mean would be that of a hiccup
	l.perRound = int(min(max(perRound/usual, 1), maxPerRound))
	return nil
}

// round makes a round of slices, which go to the rivals in an order that is
// another one each turn: whoever follows another in the same server finds it warm.
func (c *cell) round(ctx context.Context, round int) error {
	for _, l := range c.lanes {
		l.left = l.perRound
	}
	for turn := range turns {
		order := rand.New(rand.NewPCG(uint64(round), uint64(turn))).Perm(len(c.lanes))
		for _, i := range order {
			l := c.lanes[i]
			if err := l.slice(ctx, (l.perRound+turns-1)/turns); err != nil {
				return err
			}
			c.sweep()
		}
	}
	for _, l := range c.lanes {
		l.endRound()
	}
	return nil
}

// sweep collects the garbage once there is much of it.
func (c *cell) sweep() {
	var now runtime.MemStats
	runtime.ReadMemStats(&now)
	if now.HeapAlloc > c.live+garbage {
		c.collect()
	}
}

func (c *cell) collect() {
	runtime.GC()
	var now runtime.MemStats
	runtime.ReadMemStats(&now)
	c.live = now.HeapAlloc
}

// rows makes the report's rows.
func (c *cell) rows() []Row {
	var hitline []float64
	for _, l := range c.lanes {
		if l.rival.name == Hitline {
			hitline = l.medians
		}
	}
	rows := make([]Row, len(c.lanes))
	for i, l := range c.lanes {
		rows[i] = l.row(hitline)
	}
	return rows
}
