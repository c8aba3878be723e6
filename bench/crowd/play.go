//go:build linux

package crowd

import (
	"context"
	"time"
)

// play asks for the hit of a turn that arrives at a time, and loads and saves it.
func (c *cell) play(ctx context.Context, one turn, arrives time.Time) error {
	hit, err := c.hit(ctx, one, arrives)
	if err != nil {
		return err
	}
	hit = min(hit, one.hittable()*blockTokens)
	s, err := c.clients[one.owner%numClients].load(ctx, one, hit/blockTokens)
	if err != nil {
		return err
	}
	c.tally.save(one, hit, s)
	return nil
}

// hit asks for the hit of a turn, in tokens, as the cell's way does.
func (c *cell) hit(ctx context.Context, one turn, arrives time.Time) (int, error) {
	if c.way == None {
		return 0, sleepUntil(ctx, arrives.Add(time.Duration(one.wait)*stepPeriod))
	}
	l := c.lookups[one.engine]
	if !c.way.isHitline() {
		ask := c.askMaster(l, one)
		if c.way == OwnAsync {
			return askBeside(ctx, arrives, one.wait, ask)
		}
		return askEachStep(ctx, arrives, one.wait, ask)
	}
	start, full := one.start, one.hittable()*blockTokens
	if c.way == Whole {
		start = 0
	}
	if start*blockTokens >= full { // the plug-in asks for nothing then
		return full, sleepUntil(ctx, arrives.Add(time.Duration(one.wait)*stepPeriod))
	}
	ask := func(ctx context.Context, due time.Time, waited bool) (int, error) {
		hit, err := l.askHitline(ctx, one, start)
		c.count(due, waited, nil)
		return hit, err
	}
	return askRemembering(ctx, arrives, one.wait, full, ask)
}

// askMaster returns the question of vLLM's own lookup for a turn: all keys, in one request.
func (c *cell) askMaster(l *lookups, one turn) question {
	request := existRequest(0, c.prefixes, one.hashes)
	return func(_ context.Context, due time.Time, waited bool) (int, error) {
		answers, err := l.askMaster(request)
		c.count(due, waited, answers)
		return leadingFound(answers, len(c.prefixes)) * blockTokens, err
	}
}

// count counts a question that was due at a time, with the answers of a master. The tap counts those to hitlines.
func (c *cell) count(due time.Time, waited bool, answers []byte) {
	took := time.Since(due)
	c.tally.add(func(f *Figures) {
		f.Lookups++
		f.LookupKeys += int64(len(answers) / 2)
		f.LookupLeases += int64(countFound(answers))
		if waited {
			c.tally.waits = append(c.tally.waits, took)
		}
	})
}
