package client

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/netproto"
)

// Client is a client of one server. Its methods wait for the answer and are safe for concurrent
// use. All calls share one connection, and answers may come in any order. Calls take effect in a
// certain order only if one returns before the other begins.
//
// # Time
//
// A call ends with its context. One whose context has no deadline ends after the client's timeout.
// It then returns within a few milliseconds, and nothing reads its arguments any longer.
//
// # Limits
//
// The client keeps no more requests in flight than the server takes of one connection, as the server
// tells it. Further calls wait, in order. A request that the server refuses as busy is sent again
// after 10 ms, and then after up to 500 ms, until the call ends.
//
// # Errors
//
// An error wraps one of ErrRefused, ErrConnect, ErrNoAnswer, ErrReply and ErrRequest, or
// api.ErrPartlyDone. It also wraps the cause: the error of the code with ErrRefused,
// context.Canceled, context.DeadlineExceeded, os.ErrDeadlineExceeded for the client's timeout,
// net.ErrClosed after Close, or the network's error. A reply that cannot be true is an ErrReply, and a hit
// of 0.
//
// # A server that is away
//
// Calls that were not sent yet when a connection is lost go to the next one. Those that were fail, unless they
// change nothing (lookups, plans, masks, Explain, Ping, Stat): they are sent again, once, but not if the server's
// last reply was a refusal. A call waits for a connection, which is dialed every 10 ms, until its own deadline,
// if the server was there within the last 5 s; lookups of an AsyncClient always do. Once one has waited in vain,
// or none waits, calls fail at once until the server answers a dial in the background: after 10 ms at first,
// doubled each time up to a second, each randomized by half. Their errors are equal texts, and have a
// *BackoffError in their chain.
type Client struct {
	transport *transport
}

var _ api.PrefixCache = (*Client)(nil)

// Dial connects to a server at tcp://host:port, host:port (an IPv6 address is in brackets),
// tls://host:port, or ipc:///path. Without a port it is api.DefaultPort. Dial returns when the server has
// taken the token and the pool, if there are any. The caller must close the Client. ctx bounds Dial alone.
//
// addr may be a list of addresses with commas. The client begins with one that follows from its pool's name, goes on
// to the next if a server cannot be reached, and goes back after a minute. Each server is told the pool. Dial fails
// with ErrRequest if the pool is in a server's memory, since each has an index of its own.
func Dial(ctx context.Context, addr string, opts ...Option) (*Client, error) {
	cfg := newConfig(opts)
	d, err := cfg.dialer(addr)
	if err != nil {
		return nil, err
	}
	return dialClient(ctx, d, cfg)
}

// dialClient returns a connected Client over a dialer.
func dialClient(ctx context.Context, d *dialer, cfg config) (*Client, error) {
	t := newTransport(d, cfg.timeout)
	cl := &call{connect: true, done: make(chan struct{}, 1)}
	t.submit(cl)
	err := t.await(ctx, cl, t.deadline(ctx))
	if err == nil {
		err = cl.err
	}
	if err != nil {
		t.close()
		return nil, err
	}
	return &Client{t}, nil
}

// Close closes the connection. Calls in progress and later ones fail with ErrConnect. It may be
// called again and always returns nil.
func (c *Client) Close() error {
	c.transport.close()
	return nil
}

// Lookup returns how many leading tokens of a prompt of numTokens tokens are in the pool
// and loadable. hashes are the prompt's block hashes. If an engine holds the first tokens itself, they
// begin there: see coordinator.Hashes.From. Such a lookup is a lookup_from, and fails with
// ErrUnknownRequest if the server does not know it, and with ErrBadRequest for a start that the pool
// does not allow. Those of more than 64 KiB are sent without a
// copy; they are borrowed until Lookup returns. In the steady state it allocates the hit's tail
// boundaries alone, which the caller owns.
func (c *Client) Lookup(ctx context.Context, numTokens int64, hashes coordinator.Hashes) (api.Hit, error) {
	r, err := lookupRequest(numTokens, hashes)
	if err != nil {
		return api.Hit{}, err
	}
	cl, err := c.transport.do(ctx, r)
	if err != nil {
		return api.Hit{}, err
	}
	defer c.transport.putCall(cl)
	return cl.hit, cl.err
}

// LookupPrompt is Lookup for a prompt of any number of tokens, as lookup.Service.LookupPrompt is. Up to vLLM
// 0.26.0 it rounds numTokens down to a multiple of the scheduler block size first, which the server tells of
// each connection's pool. If the server tells none, as it refuses ping or is older, it rounds nothing, and such
// a lookup fails with ErrBadRequest.
func (c *Client) LookupPrompt(ctx context.Context, numTokens int64, hashes coordinator.Hashes) (api.Hit, error) {
	return c.Lookup(ctx, numTokens-max(numTokens, 0)%c.transport.promptAlignment(), hashes)
}

// Renew asks the server to keep the blocks of a prompt's first tokens, which hashes are of, as a lookup
// with a start does not ask its store for them. It returns when the server has queued that, which does it in
// the background, and drops what is too much. hashes are as for Store. A pool's api.Pool.Renew says for
// whom; it fails with ErrUnsupported where that is missing.
func (c *Client) Renew(ctx context.Context, hashes coordinator.Hashes) error {
	if err := checkKeys(hashes); err != nil {
		return err
	}
	_, err := c.roundTrip(ctx, request{tag: netproto.TagRenew, hashLen: hashes.HashLen(), blob: hashes.Bytes()})
	return err
}

// Explain says for each group why a lookup hits no more than it does. It does not count as
// a lookup and does not protect blocks from eviction. hashes are as for Lookup.
func (c *Client) Explain(ctx context.Context, numTokens int64, hashes coordinator.Hashes) (api.Explanation, error) {
	r, err := hashesRequest(netproto.TagExplain, numTokens, hashes)
	if err != nil {
		return api.Explanation{}, err
	}
	e, err := fetch[api.Explanation](ctx, c, r)
	if err == nil && (e.HitTokens < 0 || e.HitTokens > numTokens) {
		return api.Explanation{}, fmt.Errorf("%w: a hit of %d of %d tokens", ErrReply, e.HitTokens, numTokens)
	}
	return e, err
}

// Store adds keys, consecutive chunks of a group, to one rank of it. keys are borrowed until Store
// returns. After ErrConnect and ErrNoAnswer a Store, an Evict or a Reset may have taken effect, or
// may do so a moment later.
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
	_, err := c.roundTrip(ctx, request{tag: tag, rank: at, hashLen: keys.HashLen(), blob: keys.Bytes()})
	return err
}

// Reset removes every block of the pool.
func (c *Client) Reset(ctx context.Context) error {
	_, err := c.roundTrip(ctx, request{tag: netproto.TagReset})
	return err
}

// ResetRank removes all that a rank of a group holds, for a worker that has died.
// coordinator.AnyRank in a field stands for every group or rank. Over a backend a server refuses it
// unless all fields are coordinator.AnyRank, which is Reset.
func (c *Client) ResetRank(ctx context.Context, at coordinator.GroupRank) error {
	_, err := c.roundTrip(ctx, request{tag: netproto.TagResetRank, rank: at})
	return err
}

// Ping makes a round trip and returns which run of the server has answered. The memory index of
// another run is empty.
func (c *Client) Ping(ctx context.Context) (api.Instance, error) {
	return fetch[api.Instance](ctx, c, request{tag: netproto.TagPing})
}

// Stat returns the server's counters.
func (c *Client) Stat(ctx context.Context) (api.Stat, error) {
	return fetch[api.Stat](ctx, c, request{tag: netproto.TagStat})
}

// fetch makes a request that is answered 01 and a JSON document, and decodes the document.
func fetch[T any](ctx context.Context, c *Client, r request) (answer T, err error) {
	frames, err := c.roundTrip(ctx, r)
	if err != nil {
		return answer, err
	}
	if len(frames) != 2 || json.Unmarshal(frames[1], &answer) != nil {
		var none T
		return none, fmt.Errorf("%w: %s without its JSON document", ErrReply, r.tag)
	}
	return answer, nil
}

// roundTrip makes a request whose reply begins with a status, and returns a copy of the reply's
// frames.
func (c *Client) roundTrip(ctx context.Context, r request) ([][]byte, error) {
	cl, err := c.transport.do(ctx, r)
	if err != nil {
		return nil, err
	}
	defer c.transport.putCall(cl)
	return cl.frames, cl.err
}
