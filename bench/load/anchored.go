package load

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/netproto"
)

// anchorWorker makes the lookups by anchors of one connection. Not safe for concurrent
// use.
type anchorWorker struct {
	number int
	run    *runner
	conn   Anchorer
	mix    *mix
	budget int64  // requests that may still count; negative: any number
	made   int64  // requests
	joined []byte // the hashes of a miss
	window *window
}

// startAnchorWorkers makes the connections of lookups by anchors.
func (r *runner) startAnchorWorkers(ctx context.Context, sources []*mix) error {
	if r.o.Anchored == nil {
		return nil
	}
	r.collector = newCollector(len(sources))
	for i, m := range sources {
		dialCtx, cancel := r.o.deadlineIn(ctx)
		conn, err := r.o.Anchored(dialCtx, r.o.Connect)
		cancel()
		if err != nil {
			return fmt.Errorf("%w: connection %d of %d to %s: %w", measure.ErrLost, i+1, len(sources), r.o.Connect, err)
		}
		r.anchorWorkers = append(r.anchorWorkers, &anchorWorker{number: i, run: r, conn: conn, mix: m, budget: r.share(i)})
	}
	return nil
}

// workByAnchors has all anchorWorkers do a stage. The first to fail ends the others.
func (r *runner) workByAnchors(ctx context.Context, s stage) error {
	var group errgroup.Group
	for _, a := range r.anchorWorkers {
		group.Go(func() error {
			err := a.work(ctx, s)
			if err != nil {
				r.stopped.Store(true)
			}
			return err
		})
	}
	return group.Wait()
}

// work asks until the stage is over.
func (a *anchorWorker) work(ctx context.Context, s stage) error {
	r := a.run
	a.window = r.collector.fresh(s.begin, s.begin+s.window)
	now := r.clock()
	defer func() {
		a.window = r.collector.roll(a.window, now, s.end, s.window)
		a.window.last, a.window.to = true, min(max(now, a.window.from), s.end)
		r.collector.full <- a.window
	}()
	for now < s.end && a.budget != 0 && !r.stopped.Load() {
		start, hashes, err := a.ask(ctx)
		if err != nil {
			if now = r.clock(); now-max(start, s.begin) >= int64(tick) {
				a.window = r.collector.roll(a.window, now, s.end, s.window)
				a.window.abandoned(&s, start, now)
			}
			return fmt.Errorf("%w: request %d on connection %d to %s: %w", measure.ErrLost, a.made, a.number, r.o.Connect, err)
		}
		now = r.clock()
		a.window = r.collector.roll(a.window, now, s.end, s.window)
		counts := start >= s.begin
		if counts && a.budget > 0 {
			a.budget--
		}
		a.window.answered(&s, start, now)
		if counts && now <= s.end || s.answeredWithin(now) {
			a.window.requests++
			a.window.hashes += int64(hashes)
		}
	}
	return nil
}

// ask makes one lookup and checks the answer.
func (a *anchorWorker) ask(ctx context.Context) (start int64, n int, err error) {
	c, absent, expect := a.mix.pick()
	hashes, stored := c.hashes(), c.shape.hashes-len(absent)/hashLen
	if len(absent) > 0 {
		a.joined = append(append(a.joined[:0], hashes[:stored*hashLen]...), absent...)
		hashes = a.joined
	}
	ctx, cancel := a.run.o.deadlineIn(ctx)
	defer cancel()
	a.made++
	start = a.run.clock()
	hit, err := a.conn.Lookup(ctx, c.shape.tokens, hashes, hashLen)
	refused := errors.Is(err, measure.ErrRefused)
	if err != nil && !refused {
		return start, 0, err
	}
	if refused || hit != expect {
		s := slot{tag: netproto.TagLookup, hashes: int32(c.shape.hashes), stored: int32(stored), expect: expect}
		problem := judged{slot: &s, number: a.made - 1, refused: refused, low: hit < expect, problem: fmt.Sprintf("%d tokens", hit)}
		if refused {
			problem.problem = err.Error()
		}
		a.run.problem(&conn{number: a.number}, problem)
	}
	return start, c.shape.hashes, nil
}
