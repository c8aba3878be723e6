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

// answer is the hit of a lookup in tokens, and how long it took.
type answer struct {
	hit  uint32
	took time.Duration
}

// client is a connection to a rival. Not safe for concurrent use.
type client struct {
	ask func(ctx context.Context, l workload.Lookup) (answer, error)
	// askAll, in place of ask, sends lookups one after the other. It is of clients in other programs.
	askAll func(ctx context.Context, lookups []workload.Lookup) ([]answer, error)
	// pipeline sends lookups, depth of them under way, and appends their hits to hits. It is nil if
	// the client has one request under way.
	pipeline func(lookups []workload.Lookup, depth int, hits []uint32) ([]uint32, error)
	close    func()
}

// dialect is how a rival is spoken to on a socket. A reply to a lookup is a fixed
// prefix and the hit as u32.
type dialect struct {
	framing wire.Dialect                             // "": what is not hitline's
	lookup  func(tokens uint32, blobLen int) []byte  // what comes before the hashes
	prefix  []byte                                   // of a reply to a lookup
	store   func(blobLen int) (before, reply []byte) // nil: nothing is stored
}

// hitLen is the length of the hit in a reply.
const hitLen = 4

var (
	// raw is hitline's own.
	raw = framed(wire.Raw)
	// zmtp is that of a REQ socket, by which an engine asks.
	zmtp = framed(wire.ZMTP)
	// silent is that of the floor server: it gets as many bytes as hitline and always
	// answers 0.
	silent = dialect{lookup: raw.lookup}
	// plain is that of ServeMap.
	plain = dialect{
		lookup: func(tokens uint32, blobLen int) []byte {
			return appendPlainHead(nil, mapLookup, tokens, blobLen)
		},
		store: func(blobLen int) (before, reply []byte) {
			return appendPlainHead(nil, mapStore, 0, blobLen), make([]byte, hitLen)
		},
	}
)

// framed is a dialect of hitline's.
func framed(d wire.Dialect) dialect {
	return dialect{
		framing: d,
		lookup: func(tokens uint32, blobLen int) []byte {
			return netproto.AppendLookup(nil, d.Envelope(), tokens, hashLen, blobLen)
		},
		prefix: d.HitPrefix(),
		store: func(blobLen int) (before, reply []byte) {
			return netproto.AppendKeys(nil, d.Envelope(), netproto.TagStore, netproto.GroupRank{}, hashLen, blobLen), d.Done()
		},
	}
}

// dialRaw connects to a server by raw system calls. A call that is under way ends with ctx, and
// after its timeout.
func dialRaw(ctx context.Context, server wire.Server) (*wire.Conn, error) {
	control, err := wire.Dial(ctx, server)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", server.Address, err)
	}
	return control.Conn(ctx)
}

// rawClient asks by bytes that were made before.
type rawClient struct {
	*wire.Conn
	// request returns the bytes of a request in two parts, of which the second may be empty.
	request func(l workload.Lookup) (first, second []byte)
	prefix  []byte // of a reply
	size    int    // of a reply
	hit     func(reply []byte) (uint32, error)

	replies []byte        // room for as many as can be under way, and a little
	vectors []wire.Vector // reused
}

// client returns c as a client that may have depth requests under way.
func (c *rawClient) client(depth int) client {
	c.replies = make([]byte, depth*c.size+64)
	made := client{ask: c.ask, close: func() { _ = c.Close() }} // which does not fail
	if depth > 1 {
		made.pipeline = c.pipeline
	}
	return made
}

func (c *rawClient) ask(_ context.Context, l workload.Lookup) (answer, error) {
	first, second := c.request(l)
	start := time.Now()
	err := c.Send(first, second)
	var reply []byte
	if err == nil {
		reply, err = c.ReadReply(c.replies, c.size, c.prefix)
	}
	if err != nil {
		return answer{}, err
	}
	hit, err := c.hit(reply)
	return answer{hit, time.Since(start)}, err
}

// pipeline writes as many requests with one call as one read has answered.
func (c *rawClient) pipeline(lookups []workload.Lookup, depth int, hits []uint32) ([]uint32, error) {
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

// prepared asks a server in a dialect, by prepared bytes.
type prepared struct {
	server  wire.Server
	dialect dialect
	load    *lookups
}

func (p prepared) connect(ctx context.Context) (client, error) {
	conn, err := dialRaw(ctx, p.server)
	if err != nil {
		return client{}, err
	}
	before := p.dialect.lookup(p.load.tokens(), p.load.Hashes()*hashLen)
	c := &rawClient{
		Conn: conn, prefix: p.dialect.prefix, size: len(p.dialect.prefix) + hitLen,
		request: func(l workload.Lookup) (first, second []byte) { return before, p.load.Put(l) },
		hit:     func(reply []byte) (uint32, error) { return binary.BigEndian.Uint32(reply[len(reply)-hitLen:]), nil },
	}
	if p.dialect.framing == wire.ZMTP { // a REQ socket has one request under way
		return c.client(1), nil
	}
	return c.client(MaxPipeline), nil
}

// fill stores all chains, one after the other.
func (p prepared) fill(ctx context.Context) error {
	conn, err := dialRaw(ctx, p.server)
	if err != nil {
		return err
	}
	defer conn.Close()
	before, done := p.dialect.store(p.load.Hashes() * hashLen)
	reply := make([]byte, len(done)+64)
	for i := range p.load.Len() {
		if err := conn.Send(before, p.load.Chain(i)); err != nil {
			return err
		}
		if _, err := conn.ReadReply(reply, len(done), done); err != nil {
			return fmt.Errorf("chain %d: %w", i, err)
		}
	}
	return nil
}
