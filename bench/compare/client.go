//go:build linux

package compare

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/wire"
	"github.com/hitline/hitline/bench/workload"
	"github.com/hitline/hitline/netproto"
)

// hitLen is the length of the hit in a reply.
const hitLen = 4

// client asks a rival, by bytes that were made before and raw system calls. Not safe for
// concurrent use.
type client struct {
	*wire.Conn
	// request returns the bytes of a request in two parts, of which the second may be empty.
	request func(l workload.Lookup) (first, second []byte)
	prefix  []byte // of a reply
	size    int    // of a reply
	hit     func(reply []byte) (uint32, error)
	depth   int // requests that may be under way

	replies []byte        // room for as many as can be under way, and a little
	vectors []wire.Vector // reused
}

// dial connects to a server. A call that is under way ends with ctx, and after its timeout.
func dial(ctx context.Context, server wire.Server) (*wire.Conn, error) {
	control, err := wire.Dial(ctx, server)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", server.Address, err)
	}
	return control.Conn(ctx)
}

// ask makes one lookup, and returns its hit in tokens and how long it took.
func (c *client) ask(l workload.Lookup) (hit uint32, took time.Duration, err error) {
	if c.replies == nil {
		c.replies = make([]byte, c.depth*c.size+64)
	}
	first, second := c.request(l)
	start := time.Now()
	if err := c.Send(first, second); err != nil {
		return 0, 0, err
	}
	reply, err := c.ReadReply(c.replies, c.size, c.prefix)
	if err != nil {
		return 0, 0, err
	}
	hit, err = c.hit(reply)
	return hit, time.Since(start), err
}

// pipeline sends lookups, depth of them under way, and appends their hits to hits. It writes as
// many requests with one call as one read has answered.
func (c *client) pipeline(lookups []workload.Lookup, depth int, hits []uint32) ([]uint32, error) {
	for sent, have := 0, 0; len(hits) < len(lookups); {
		if burst := lookups[sent:min(len(hits)+depth, len(lookups))]; len(burst) > 0 {
			c.vectors = c.vectors[:0]
			for _, l := range burst {
				first, second := c.request(l)
				c.vectors = append(c.vectors, wire.VectorOf(first), wire.VectorOf(second))
			}
			if err := c.WriteAll(c.vectors); err != nil {
				return hits, err
			}
			sent += len(burst)
		}
		n, err := c.Read(c.replies[have:])
		if err != nil {
			return hits, err
		}
		replies := c.replies[:have+n]
		for len(replies) > 0 && wire.StartsLike(replies, c.prefix) && len(replies) >= c.size && len(hits) < sent {
			hit, err := c.hit(replies[:c.size])
			if err != nil {
				return hits, err
			}
			hits = append(hits, hit)
			replies = replies[c.size:]
		}
		switch {
		case len(replies) > 0 && len(hits) == sent:
			return hits, fmt.Errorf("%w: %x, which was not asked for", measure.ErrAnswer, wire.Clip(replies))
		case !wire.StartsLike(replies, c.prefix): // waiting for the rest of a refusal could be for ever
			return hits, fmt.Errorf("%w: it begins with %x", measure.ErrAnswer, wire.Clip(replies))
		}
		have = copy(c.replies, replies)
	}
	return hits, nil
}

// target is a server that speaks hitline's frames, or is sent them.
type target struct {
	server wire.Server
	load   *lookups
	prefix []byte // of a reply to a lookup; the hit follows
}

// lookupHead returns what comes before the hashes of a lookup.
func lookupHead(load *lookups, d wire.Dialect) []byte {
	return netproto.AppendLookup(nil, d.Envelope(), load.tokens(), hashLen, load.Hashes()*hashLen)
}

func (t target) connect(ctx context.Context) (*client, error) {
	conn, err := dial(ctx, t.server)
	if err != nil {
		return nil, err
	}
	head := lookupHead(t.load, t.server.Dialect)
	c := &client{
		Conn: conn, prefix: t.prefix, size: len(t.prefix) + hitLen, depth: MaxPipeline,
		request: func(l workload.Lookup) (first, second []byte) { return head, t.load.Put(l) },
		hit:     func(reply []byte) (uint32, error) { return binary.BigEndian.Uint32(reply[len(reply)-hitLen:]), nil },
	}
	if t.server.Dialect == wire.ZMTP { // a REQ socket has one request under way
		c.depth = 1
	}
	return c, nil
}

// fill stores all chains, one after the other.
func (t target) fill(ctx context.Context) error {
	control, err := wire.Dial(ctx, t.server)
	if err != nil {
		return err
	}
	defer control.Close()
	head := netproto.AppendKeys(nil, t.server.Dialect.Envelope(), netproto.TagStore, netproto.WireRank{}, hashLen, t.load.Hashes()*hashLen)
	for i := range t.load.Len() {
		if _, err := control.Done(ctx, fmt.Sprintf("chain %d", i), head, t.load.Chain(i)); err != nil {
			return err
		}
	}
	return nil
}
