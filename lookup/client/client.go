package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/netproto"
)

// Client is a client of one server. Its methods wait for the answer and are safe for
// concurrent use.
//
// A call has a connection to itself, one of the pool that WithConnections bounds, and
// waits while all are in use. With WithPipeline all calls share one connection, and answers
// may come in any order. Calls take effect in a certain order only if one returns before
// the other begins.
//
// # Time
//
// A call ends with its context or after the client's timeout, whichever is earlier. It
// then returns within a few milliseconds, and nothing reads its arguments any longer.
//
// # Errors
//
// An error wraps one of ErrRefused, ErrConnect, ErrNoAnswer, ErrReply and ErrRequest. It
// also wraps the cause: context.Canceled, context.DeadlineExceeded,
// os.ErrDeadlineExceeded for the client's timeout, net.ErrClosed after Close, or the
// network's error. No request is ever sent twice. ErrNotAllowed, ErrNotAuthenticated and
// ErrPoolDiffers come together with ErrRefused.
//
// A connection that failed, or was abandoned during a request, is not used again; the next
// call dials a new one. After a failed dial, calls fail without dialing until a backoff is
// over: 10 ms at first, doubled each time up to a second, each randomized by half. On
// systems that are not Unix, the first call after the server closed an idle connection
// fails with ErrConnect.
type Client struct {
	timeout  time.Duration // of a call; 0 or less means none
	failOpen bool
	dialer   *dialer
	pool     *pool // nil with WithPipeline
	pipe     *pipe // nil without WithPipeline
}

var _ api.PrefixCache = (*Client)(nil)

// Dial connects to a server at tcp://host:port, host:port (an IPv6 address is in
// brackets), tls://host:port, ipc:///path or, on Linux, ipc://@name for an abstract socket. The
// caller must close the Client. ctx bounds Dial alone.
func Dial(ctx context.Context, addr string, opts ...Option) (*Client, error) {
	cfg := newConfig(opts)
	d, err := cfg.dialer(addr)
	if err != nil {
		return nil, err
	}
	return dialClient(ctx, d, cfg)
}

// dialClient returns a Client over a dialer, connected unless it fails open.
func dialClient(ctx context.Context, d *dialer, cfg config) (*Client, error) {
	c := &Client{timeout: cfg.timeout, failOpen: cfg.failOpen, dialer: d}
	var first net.Conn
	if !cfg.failOpen {
		var err error
		if first, err = d.dial(ctx, c.deadline()); err != nil {
			return nil, connectError(err)
		}
	}
	if cfg.pipelined {
		c.pipe = newPipe(d, first, cfg.timeout)
		return c, nil
	}
	c.pool = newPool(d, cfg.connections)
	if first != nil {
		conn, err := c.pool.add(first)
		if err != nil {
			return nil, connectError(err)
		}
		c.pool.putIdle(conn)
	}
	return c, nil
}

// Close closes the connections. Calls in progress and later ones fail with ErrConnect. It
// may be called again and always returns nil.
func (c *Client) Close() error {
	if c.pipe != nil {
		c.pipe.close()
		return nil
	}
	c.pool.close()
	return nil
}

// Lookup returns how many leading tokens of a prompt of numTokens tokens are in the pool
// and loadable. hashes are the prompt's block hashes; they are sent without a copy and
// borrowed until Lookup returns. In the steady state it allocates the hit's tail boundaries
// alone, which the caller owns.
func (c *Client) Lookup(ctx context.Context, numTokens int64, hashes coordinator.Hashes) (api.Hit, error) {
	hit, err := c.lookup(ctx, numTokens, hashes)
	return hit, c.wrapFailedOpen(err)
}

// deadline returns the deadline of a call that begins now, zero if it has none.
func (c *Client) deadline() time.Time { return deadlineAfter(c.timeout) }

// deadlineAfter returns the time d from now, zero if d is 0 or less.
func deadlineAfter(d time.Duration) time.Time {
	if d <= 0 {
		return time.Time{}
	}
	return time.Now().Add(d)
}

// deadlineFor returns the earlier of deadline and that of ctx.
func (c *Client) deadlineFor(ctx context.Context) time.Time {
	deadline := c.deadline()
	if at, ok := ctx.Deadline(); ok && (deadline.IsZero() || at.Before(deadline)) {
		return at
	}
	return deadline
}

// wrapFailedOpen wraps the error of a lookup in ErrFailedOpen if the client fails open.
func (c *Client) wrapFailedOpen(err error) error {
	if err == nil || !c.failOpen || errors.Is(err, ErrRequest) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrFailedOpen, err)
}

// lookup is Lookup without ErrFailedOpen.
func (c *Client) lookup(ctx context.Context, numTokens int64, hashes coordinator.Hashes) (api.Hit, error) {
	r, err := hashesRequest(netproto.TagLookup, numTokens, hashes)
	if err != nil {
		return api.Hit{}, err
	}
	deadline := c.deadlineFor(ctx)
	if c.pipe != nil {
		return c.pipe.lookup(ctx, deadline, r)
	}
	conn, err := c.exchange(ctx, deadline, &r)
	if err != nil {
		return api.Hit{}, err
	}
	hit, err := readHit(conn.frames)
	c.pool.put(conn, nil)
	return hit, err
}

// exchange makes a request on a connection of the pool. The caller must put the
// connection back after reading its frames.
func (c *Client) exchange(ctx context.Context, deadline time.Time, r *request) (*conn, error) {
	conn, err := c.pool.get(ctx, deadline)
	if err != nil {
		return nil, connectError(err)
	}
	if err := conn.exchange(r); err != nil {
		c.pool.put(conn, err)
		return nil, exchangeError(err)
	}
	return conn, nil
}

// Explain says for each group why a lookup hits no more than it does. It does not count as
// a lookup and does not protect blocks from eviction. hashes are as for Lookup.
func (c *Client) Explain(ctx context.Context, numTokens int64, hashes coordinator.Hashes) (api.Explanation, error) {
	var e api.Explanation
	r, err := hashesRequest(netproto.TagExplain, numTokens, hashes)
	if err != nil {
		return e, err
	}
	doc, err := c.fetchDocument(ctx, r)
	if err == nil && json.Unmarshal(doc, &e) != nil {
		err = fmt.Errorf("%w: explain without its JSON document", ErrReply)
	}
	return e, err
}

// Store adds keys, consecutive chunks of a group, to one rank of it. keys are sent without
// a copy and borrowed until Store returns. After ErrConnect and ErrNoAnswer a Store, an
// Evict or a Reset may have taken effect, or may do so a moment later.
func (c *Client) Store(ctx context.Context, at coordinator.GroupRank, keys coordinator.Hashes) error {
	return c.storeOrEvict(ctx, netproto.TagStore, at, keys)
}

// Evict removes keys from one rank of a group. keys are as for Store.
func (c *Client) Evict(ctx context.Context, at coordinator.GroupRank, keys coordinator.Hashes) error {
	return c.storeOrEvict(ctx, netproto.TagEvict, at, keys)
}

func (c *Client) storeOrEvict(ctx context.Context, tag netproto.Tag, at coordinator.GroupRank, keys coordinator.Hashes) error {
	if err := checkKeys(keys); err != nil {
		return err
	}
	return c.do(ctx, request{tag: tag, rank: at, hashLen: keys.HashLen(), blob: keys.Bytes()})
}

// Reset removes every block of the pool.
func (c *Client) Reset(ctx context.Context) error {
	return c.do(ctx, request{tag: netproto.TagReset})
}

// ResetRank removes all that a rank of a group holds, for a worker that has died.
// coordinator.AnyRank in a field stands for every group or rank. Over a backend a server refuses it
// unless all fields are coordinator.AnyRank, which is Reset.
func (c *Client) ResetRank(ctx context.Context, at coordinator.GroupRank) error {
	return c.do(ctx, request{tag: netproto.TagResetRank, rank: at})
}

// Ping makes a round trip to the server.
func (c *Client) Ping(ctx context.Context) error {
	return c.do(ctx, request{tag: netproto.TagPing})
}

// Stat returns the server's counters as JSON, which decodes into an api.Stat. The caller
// owns the result.
func (c *Client) Stat(ctx context.Context) (json.RawMessage, error) {
	doc, err := c.fetchDocument(ctx, request{tag: netproto.TagStat})
	if err == nil && !json.Valid(doc) {
		return nil, fmt.Errorf("%w: stat without a JSON document", ErrReply)
	}
	return doc, err
}

// do makes a request that is answered 01.
func (c *Client) do(ctx context.Context, r request) error {
	_, err := c.roundTrip(ctx, r)
	return err
}

// fetchDocument makes a request that is answered 01 and a document, and returns a copy of
// the document.
func (c *Client) fetchDocument(ctx context.Context, r request) ([]byte, error) {
	frames, err := c.roundTrip(ctx, r)
	if err != nil {
		return nil, err
	}
	if len(frames) != 2 {
		return nil, fmt.Errorf("%w: %s with %d frames", ErrReply, r.tag, len(frames))
	}
	return frames[1], nil
}

// roundTrip makes a request whose reply begins with a status, and returns a copy of the
// reply's frames.
func (c *Client) roundTrip(ctx context.Context, r request) ([][]byte, error) {
	if c.pipe != nil {
		return c.pipe.roundTrip(ctx, c.deadline(), r)
	}
	conn, err := c.exchange(ctx, c.deadlineFor(ctx), &r)
	if err != nil {
		return nil, err
	}
	frames := cloneFrames(conn.frames)
	err = readStatus(frames)
	if errors.Is(err, ErrReply) {
		c.pool.put(conn, err)
	} else {
		c.pool.put(conn, nil)
	}
	return frames, err
}
