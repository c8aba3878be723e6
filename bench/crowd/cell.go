//go:build linux

package crowd

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/hitline/hitline/bench/process"
	"github.com/hitline/hitline/coordinator"
)

// cell is a way and a number of engines, with a store of its own.
type cell struct {
	o       Options
	tp      int
	way     Way
	engines int

	pool     coordinator.Pool
	prefixes []string
	turns    *turns
	upcoming turn // the next one

	folder   string // of sockets
	master   *process.Master
	tap      *tap // to the master, for hitlines
	hitlines []*process.Process
	clients  []*storeClient
	lookups  []*lookups // by engine
	tally    *tally     // of the window under way
	total    *tally     // of the windows that count, of all rounds
}

func (c *cell) String() string { return fmt.Sprintf("TP %d, %s, %d engines", c.tp, c.way, c.engines) }

// run measures a round, and returns the figures of all so far.
func (c *cell) run(ctx context.Context, s *sessions, m process.Mooncake) (Figures, error) {
	defer c.stop()
	if err := c.start(ctx, s, m); err != nil {
		return Figures{}, err
	}
	if err := c.window(ctx, c.o.Lead, &tally{}); err != nil {
		return Figures{}, err
	}
	err := c.window(ctx, c.o.Window, c.total)
	return c.total.f, err
}

// start starts the master and what asks it, and fills the store. stop undoes it, also after an error.
func (c *cell) start(ctx context.Context, s *sessions, m process.Mooncake) (err error) {
	c.pool = newPool(c.tp)
	if c.prefixes, err = keyPrefixes(c.pool); err != nil {
		return err
	}
	if c.folder, err = os.MkdirTemp("/tmp", "hitbench"); err != nil { // the path of a socket has at most 107 bytes
		return err
	}
	if c.master, err = m.StartMaster(ctx, c.o.Timeout); err != nil {
		return err
	}
	blocks := c.o.StoreTokens / blockTokens * c.engines
	o := process.Options{Timeout: c.o.Timeout}
	if c.clients, err = startClients(ctx, c.o.Python, c.master.RPC, blocks*c.tp, c.prefixes, o); err != nil {
		return err
	}
	c.turns = newTurns(s, c.engines, c.o.CacheTokens/blockTokens, c.o.Seed)
	if err := fillStore(ctx, c.clients, c.turns.fill(blocks)); err != nil {
		return err
	}
	c.upcoming = c.turns.next()
	return c.startLookups(ctx)
}

// startLookups starts hitlines, if the way has any, and connects the engines.
func (c *cell) startLookups(ctx context.Context) (err error) {
	if c.way == None {
		return nil
	}
	if !c.way.isHitline() {
		for range c.engines {
			l, err := dialMaster(c.master.RPC, c.o.Timeout)
			if err != nil {
				return err
			}
			c.lookups = append(c.lookups, l)
		}
		return nil
	}
	if c.tap, err = newTap(c.master.RPC, nil); err != nil {
		return err
	}
	var address string
	for i := range c.engines {
		if i == 0 || c.way == Each {
			address = "ipc://" + filepath.Join(c.folder, fmt.Sprintf("%d.sock", i))
			variables := []string{"HITLINE_BACKEND_MOONCAKE_MASTERS=" + c.tap.addr()}
			if c.way == Patient {
				variables = append(variables, "HITLINE_BACKEND_MOONCAKE_TIMEOUT=1s")
			}
			cmd := process.Serve(c.o.Hitline, variables, "--listen", address, "--backend", "mooncake")
			p, err := process.Start(ctx, cmd, process.Options{Timeout: c.o.Timeout})
			if err != nil {
				return err
			}
			c.hitlines = append(c.hitlines, p)
		}
		l, err := dialHitline(ctx, address, c.pool, i, c.o.Timeout)
		if err != nil {
			return err
		}
		c.lookups = append(c.lookups, l)
	}
	return nil
}

// stop stops what start has started.
func (c *cell) stop() {
	for _, l := range c.lookups {
		l.close()
	}
	for _, p := range c.hitlines {
		p.Stop()
	}
	if c.tap != nil {
		c.tap.close()
	}
	for _, s := range c.clients {
		s.child.Stop()
	}
	if c.master != nil {
		c.master.Stop()
	}
	if c.folder != "" {
		_ = os.RemoveAll(c.folder)
	}
}

// window runs the turns that begin in a time, and adds its figures when all have ended.
func (c *cell) window(ctx context.Context, length time.Duration, t *tally) error {
	c.tally = t
	before, err := c.read(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	group, playing := errgroup.WithContext(ctx)
	defer context.AfterFunc(ctx, func() { // ends questions
		for _, l := range c.lookups {
			l.close()
		}
	})()
	first := c.upcoming.at
	for end := first + length; c.upcoming.at < end && playing.Err() == nil; c.upcoming = c.turns.next() {
		one, arrives := c.upcoming, began.Add(c.upcoming.at-first)
		if sleepUntil(playing, arrives) != nil {
			break // Wait says why
		}
		group.Go(func() error { return c.play(playing, one, arrives) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if err := sleepUntil(ctx, began.Add(length)); err != nil {
		return err
	}
	after, err := c.read(ctx)
	if err != nil {
		return err
	}
	after.addSince(before, &t.f)
	t.finish()
	return nil
}
