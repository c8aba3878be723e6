package load

import (
	"context"
	"errors"
	"fmt"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/wire"
	"github.com/hitline/hitline/netproto"
)

// anchored is a worker of one connection that looks up by anchors: its requests are those of
// its source, asked for by a client, which blocks. It needs no thread of its own.
type anchored struct {
	*worker
	client Anchorer
	joined []byte // a request of two parts
	frames [][]byte
}

// dialAnchored makes the connections of lookups by anchors and their workers.
func (r *runner) dialAnchored(ctx context.Context) error {
	r.collector = newCollector(len(r.conns))
	for i := range r.conns {
		dialCtx, cancel := context.WithTimeout(ctx, r.o.Timeout)
		client, err := r.o.Anchored(dialCtx, r.o.Connect)
		cancel()
		if err != nil {
			return fmt.Errorf("%w: connection %d of %d to %s: %w", measure.ErrLost, i+1, len(r.conns), r.o.Connect, err)
		}
		w := &worker{number: i, run: r, conns: []*conn{newConn(i, r.o, wire.Socket{})}}
		r.anchored = append(r.anchored, &anchored{worker: w, client: client})
	}
	return nil
}

// work asks until the stage is over.
func (a *anchored) work(ctx context.Context, s stage) error {
	a.begin(s)
	defer a.finish()
	for c := a.conns[0]; a.now < s.end && c.able() && !a.run.stopped.Load(); {
		c.ask(a.now, a.now, a.now >= s.begin)
		a.underWay++
		if err := a.lookup(ctx, c); err != nil {
			return a.failed(c, fmt.Errorf("%w: %w", measure.ErrLost, err))
		}
	}
	return nil
}

// lookup makes the lookup that c has made, and checks the answer. A lookup counts from here:
// the client takes its hashes in one piece.
func (a *anchored) lookup(ctx context.Context, c *conn) error {
	request := c.parts[0]
	if len(c.parts) > 1 {
		a.joined = append(append(a.joined[:0], c.parts[0]...), c.parts[1]...)
		request = a.joined
	}
	c.vector = c.vector[:0]
	frames, _, err := netproto.ParseMessage(request, netproto.Limits{}, a.frames[:0])
	if err != nil {
		return err
	}
	a.frames = frames
	answer := judged{slot: &c.slots[0], number: c.answered}
	ctx, cancel := context.WithTimeout(ctx, a.run.o.Timeout)
	defer cancel()
	answer.slot.start = a.run.clock()
	hit, err := a.client.Lookup(ctx, uint32(netproto.ParseInt(frames[1])), frames[3], hashLen)
	a.now = a.run.clock()
	a.roll()
	switch {
	case errors.Is(err, measure.ErrRefused):
		answer.problem, answer.refused = err.Error(), true
	case err != nil:
		return err
	default:
		answer.compare(hit)
	}
	c.answered++
	a.take(c, answer)
	return nil
}
