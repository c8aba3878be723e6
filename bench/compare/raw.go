package compare

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"time"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/wire"
	"github.com/hitline/hitline/bench/workload"
	"github.com/hitline/hitline/netproto"
)

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

// rawConn is a connection that is used by raw system calls. It ends with a context.
type rawConn struct{ *wire.Conn }

// dialRaw connects to a server. A call that is under way ends with ctx, and after its timeout.
func dialRaw(ctx context.Context, server wire.Server) (rawConn, error) {
	control, err := wire.Dial(ctx, server)
	if err != nil {
		return rawConn{}, err
	}
	conn, err := control.Conn(ctx)
	return rawConn{conn}, err
}

func (c rawConn) close() { _ = c.Close() } // which does not fail

// connector connects to a server in a dialect.
type connector struct {
	server  wire.Server
	dialect dialect
}

func (c connector) dial(ctx context.Context, w *lookups) (*dialectClient, error) {
	conn, err := dialRaw(ctx, c.server)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.server.Address, err)
	}
	return &dialectClient{
		rawConn: conn, dialect: c.dialect, load: w, before: c.dialect.lookup(w.tokens(), w.Hashes()*hashLen),
		replies: make([]byte, MaxPipeline*(len(c.dialect.prefix)+hitLen)+64),
	}, nil
}

// connect returns a client that sends prepared bytes.
func (c connector) connect(ctx context.Context, w *lookups) (client, error) {
	d, err := c.dial(ctx, w)
	if err != nil {
		return nil, err
	}
	if c.dialect.framing == wire.ZMTP { // a REQ socket has one request under way
		return oneByOne{d}, nil
	}
	return dialectPipeline{oneByOne{d}, d}, nil
}

// fill stores all chains, one after the other.
func (c connector) fill(ctx context.Context, w *lookups) error {
	conn, err := c.dial(ctx, w)
	if err != nil {
		return err
	}
	defer conn.close()
	before, right := c.dialect.store(w.Hashes() * hashLen)
	reply := make([]byte, len(right))
	for i := range w.Len() {
		if err := conn.Send(before, w.Chain(i)); err != nil {
			return err
		}
		if _, err := io.ReadFull(conn, reply); err != nil {
			return err
		}
		if !bytes.Equal(reply, right) {
			return fmt.Errorf("%w: chain %d: %x", measure.ErrAnswer, i, reply)
		}
	}
	return nil
}

// dialectClient asks a server in a dialect.
type dialectClient struct {
	rawConn
	prepared
	dialect dialect
	load    *lookups
	before  []byte        // the hashes of a request
	replies []byte        // room for as many as can be under way, and a little
	vectors []wire.Vector // reused
}

func (c *dialectClient) askOne(_ context.Context, l workload.Lookup) (answer, error) {
	hashes := c.load.Put(l)
	start := time.Now()
	err := c.Send(c.before, hashes)
	var reply []byte
	if err == nil {
		reply, err = c.ReadReply(c.replies, len(c.dialect.prefix)+hitLen, c.dialect.prefix)
	}
	took := time.Since(start)
	if err != nil {
		return answer{}, err
	}
	return answer{binary.BigEndian.Uint32(reply[len(reply)-hitLen:]), took}, nil
}

// dialectPipeline is a dialectClient that may have several requests under way.
type dialectPipeline struct {
	oneByOne
	c *dialectClient
}

// pipeline implements pipeliner: it writes as many requests with one call as one read has
// answered.
func (p dialectPipeline) pipeline(lookups []workload.Lookup, depth int, hits []uint32) ([]uint32, error) {
	c, size := p.c, len(p.c.dialect.prefix)+hitLen
	for sent, have := 0, 0; len(hits) < len(lookups); {
		if burst := lookups[sent:min(len(hits)+depth, len(lookups))]; len(burst) > 0 {
			if err := c.sendAll(burst); err != nil {
				return hits, err
			}
			sent += len(burst)
		}
		n, err := c.Read(c.replies[have:])
		if err != nil {
			return hits, err
		}
		replies := c.replies[:have+n]
		for len(replies) > 0 && wire.StartsLike(replies, c.dialect.prefix) && len(replies) >= size && len(hits) < sent {
			hits = append(hits, binary.BigEndian.Uint32(replies[size-hitLen:]))
			replies = replies[size:]
		}
		switch {
		case len(replies) > 0 && len(hits) == sent:
			return hits, fmt.Errorf("%w: %x, which was not asked for", measure.ErrAnswer, wire.Clip(replies))
		case !wire.StartsLike(replies, c.dialect.prefix): // waiting for the rest of a refusal could be for ever
			return hits, fmt.Errorf("%w: it begins with %x", measure.ErrAnswer, wire.Clip(replies))
		}
		have = copy(c.replies, replies)
	}
	return hits, nil
}

// sendAll writes several requests.
func (c *dialectClient) sendAll(lookups []workload.Lookup) error {
	c.vectors = c.vectors[:0]
	for _, l := range lookups {
		c.vectors = append(c.vectors, wire.VectorOf(c.before), wire.VectorOf(c.load.Put(l)))
	}
	return c.WriteAll(c.vectors)
}
