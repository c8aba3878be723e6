package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/netproto"
)

// GroupRank is a group on one rank, as on the wire. TPRank is the KV shard, see
// netproto.GroupRank.
type GroupRank = netproto.GroupRank

// Client asks a server in the raw dialect. All methods are safe for concurrent
// use and wait for their answer; [AsyncClient] does not.
//
// A call takes a connection that no other call uses, of at most as many as
// WithConnections allows, and waits where all are in use; with WithPipeline all
// calls share one connection, and answers may overtake each other. Which call
// takes effect first is only certain where one has returned before the other is
// made.
//
// # Time
//
// A call ends when its context does, or after the client's timeout. It then
// returns at once, at most a few milliseconds late, and nothing reads its
// arguments any longer.
//
// # Errors
//
// An error wraps one of ErrRefused, ErrConnect, ErrNoAnswer, ErrReply and ErrRequest,
// and beside that the cause: context.Canceled, context.DeadlineExceeded,
// os.ErrDeadlineExceeded for the client's timeout, net.ErrClosed after Close, or
// what the network said. No request is ever sent twice.
//
// A connection that was cut, or left in the middle of a request, is not used
// again; the next call makes a new one. While the server cannot be reached, calls
// fail without trying: attempts are 10 ms apart at first and then twice as long
// each time, up to a second, half of it more or less by chance. Outside Unix the first
// call on a connection that the server has closed meanwhile fails with ErrConnect.
type Client struct {
	timeout  time.Duration
	failOpen bool
	dialer   *dialer
	anchors  anchorsState
	pool     *pool // nil with a pipe
	pipe     *pipe // nil with a pool
}

// Option changes how a Client or an AsyncClient works.
type Option func(*config)

type config struct {
	timeout     time.Duration
	connections int
	pipelined   bool
	failOpen    bool
	anchorsFrom int
	anchorsSet  bool // by WithAnchors
	dial        func(ctx context.Context, network, address string) (net.Conn, error)
	pendingIDs  int
	pendingSize int
}

// Defaults of clients.
const (
	// DefaultTimeout bounds a request whose context has no earlier deadline.
	DefaultTimeout = 10 * time.Second
	// DefaultConnections is how many connections a Client opens at most.
	DefaultConnections = 8
)

// WithTimeout bounds each request, and the dialling, by d; 0 or less means no
// bound but the context's. Default: DefaultTimeout.
func WithTimeout(d time.Duration) Option { return func(c *config) { c.timeout = d } }

// WithConnections bounds the connections of a Client, each of which serves one
// call at a time. They are opened when they are needed. Default:
// DefaultConnections. n less than 1 means 1. It says nothing with WithPipeline.
func WithConnections(n int) Option {
	return func(c *config) { c.connections = max(n, 1) }
}

// WithPipeline makes all calls of a Client share one connection, on which up to
// 1,024 requests are under way at a time; further ones wait. It is for many calls
// at a time: a single one answers sooner without it. A connection on which nothing
// comes for twice the timeout, though answers are due, is given up.
func WithPipeline() Option { return func(c *config) { c.pipelined = true } }

// WithDialer has connections made by dial, which gets "tcp" or "unix" and the
// address, in place of a net.Dialer: through a proxy, or counted.
func WithDialer(dial func(ctx context.Context, network, address string) (net.Conn, error)) Option {
	return func(c *config) { c.dial = dial }
}

// WithFailOpen makes a lookup that cannot be answered, for whatever reason but
// ErrRequest, a miss: 0 tokens and an error that also wraps ErrFailedOpen, which
// the caller may pass over. Dial then does not connect, so that a client may be
// there before its server.
func WithFailOpen() Option { return func(c *config) { c.failOpen = true } }

func newConfig(opts []Option) config {
	cfg := config{
		timeout: DefaultTimeout, connections: DefaultConnections, anchorsFrom: DefaultAnchorsFrom,
		dial:       new(net.Dialer).DialContext,
		pendingIDs: DefaultPendingIDs, pendingSize: DefaultPendingBytes,
	}
	for _, o := range opts {
		o(&cfg)
	}
	return cfg
}

// Dial connects to a server at tcp://host:port, host:port (an IPv6 address stands
// in brackets), ipc:///path or, on Linux, ipc://@name for an abstract socket. The
// Client must be closed.
func Dial(ctx context.Context, addr string, opts ...Option) (*Client, error) {
	cfg := newConfig(opts)
	d, err := newDialer(addr, cfg.dial)
	if err != nil {
		return nil, err
	}
	return dialClient(ctx, d, cfg)
}

func dialClient(ctx context.Context, d *dialer, cfg config) (*Client, error) {
	c := &Client{timeout: cfg.timeout, failOpen: cfg.failOpen, dialer: d}
	c.anchors.from = cfg.anchorsFrom
	var first net.Conn
	if !cfg.failOpen {
		var err error
		if first, err = d.dial(ctx, c.until()); err != nil {
			return nil, connectError(err)
		}
	}
	if cfg.pipelined {
		c.pipe = newPipe(d, first, cfg.timeout)
		return c, nil
	}
	c.pool = newPool(d, cfg.connections)
	if first != nil {
		conn, err := c.pool.adopt(first)
		if err != nil {
			return nil, connectError(err)
		}
		c.pool.keep(conn)
	}
	return c, nil
}

// newClient returns a client of one connection, which it cannot replace.
func newClient(nc net.Conn, opts ...Option) *Client {
	var dialled atomic.Bool
	c, _ := dialClient(context.Background(), dialerTo(func(context.Context) (net.Conn, error) {
		if dialled.Swap(true) {
			return nil, errors.New("there was one connection only")
		}
		return nc, nil
	}), newConfig(opts))
	return c
}

// until returns when a call that begins now must be over, zero for never.
func (c *Client) until() time.Time { return untilAfter(c.timeout) }

// untilFor is until, or the end of ctx if that is earlier.
func (c *Client) untilFor(ctx context.Context) time.Time {
	until := c.until()
	if at, ok := ctx.Deadline(); ok && (until.IsZero() || at.Before(until)) {
		return at
	}
	return until
}

// Close closes the connections. Calls under way fail with ErrConnect, as do later
// ones. It returns nil, also when it is called again.
func (c *Client) Close() error {
	if c.pipe != nil {
		c.pipe.close()
		return nil
	}
	c.pool.close()
	return nil
}

var _ api.PrefixCache = (*Client)(nil)

// Lookup asks how many leading tokens of a prompt of numTokens are in the pool and
// loadable. hashes are its block hashes; they are sent without being copied and only
// borrowed. It does not allocate in the steady state.
func (c *Client) Lookup(ctx context.Context, numTokens int64, hashes netproto.Hashes) (api.Hit, error) {
	tokens, err := c.lookup(ctx, numTokens, hashes)
	var hit api.Hit
	if err == nil {
		hit, err = newHit(tokens)
	}
	return hit, c.failedOpen(err)
}

// newHit refuses a hit that does not fit the protocol's 32 bits.
func newHit(tokens uint64) (api.Hit, error) {
	if tokens > math.MaxUint32 {
		return api.Hit{}, fmt.Errorf("%w: a hit of %d tokens", ErrReply, tokens)
	}
	return api.Hit{Tokens: int64(tokens)}, nil
}

// failedOpen adds ErrFailedOpen to the error of a lookup that fails open.
func (c *Client) failedOpen(err error) error {
	if err == nil || !c.failOpen || errors.Is(err, ErrRequest) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrFailedOpen, err)
}

// lookup reads the hit as the reference client does: an integer of any length,
// saturated.
func (c *Client) lookup(ctx context.Context, numTokens int64, hashes netproto.Hashes) (uint64, error) {
	r, err := hashesRequest(netproto.TagLookup, numTokens, hashes)
	if err != nil {
		return 0, err
	}
	until := c.untilFor(ctx) // of all exchanges
	if from := c.anchors.from; from > 0 && r.hashLen > 0 && r.hashLen <= netproto.MaxHashLen && hashes.Len() >= from {
		hit, done, err := c.lookupByAnchors(ctx, until, r.numTokens, r.blob, r.hashLen)
		if done || err != nil {
			return hit, err
		}
	}
	if c.pipe != nil {
		return c.pipe.lookup(ctx, until, r)
	}
	conn, err := c.exchange(ctx, until, &r)
	if err != nil {
		return 0, err
	}
	hit, err := readHit(conn.frames)
	c.pool.put(conn, nil)
	return hit, err
}

// exchange makes an exchange on a connection of the pool, which the caller must
// put back once he has read its frames.
func (c *Client) exchange(ctx context.Context, until time.Time, r *request) (*conn, error) {
	conn, err := c.pool.get(ctx, until)
	if err != nil {
		return nil, connectError(err)
	}
	if err := conn.exchange(r); err != nil {
		c.pool.put(conn, err)
		return nil, exchangeError(err)
	}
	return conn, nil
}

// connectError makes ErrConnect of an error that has no name of ours.
func connectError(err error) error { return withSentinel(err, ErrConnect) }

// exchangeError makes ErrNoAnswer of an error that has no name of ours where a call's
// time was up, or its caller had left, while it had a connection, otherwise ErrConnect.
func exchangeError(err error) error {
	if lost(err) {
		return withSentinel(err, ErrConnect)
	}
	return withSentinel(err, ErrNoAnswer)
}

// withSentinel wraps an error by a sentinel, unless it has one.
func withSentinel(err, sentinel error) error {
	for _, name := range [...]error{ErrReply, ErrConnect, ErrNoAnswer, ErrRequest} {
		if errors.Is(err, name) {
			return err
		}
	}
	return fmt.Errorf("%w: %w", sentinel, err)
}

// Explain asks why a lookup hits no more than it does. It neither counts as a
// lookup nor keeps blocks from being evicted. hashes are as for Lookup.
func (c *Client) Explain(ctx context.Context, numTokens int64, hashes netproto.Hashes) (api.Explanation, error) {
	var e api.Explanation
	r, err := hashesRequest(netproto.TagExplain, numTokens, hashes)
	if err != nil {
		return e, err
	}
	doc, err := c.document(ctx, r)
	if err == nil && json.Unmarshal(doc, &e) != nil {
		err = fmt.Errorf("%w: explain without its JSON document", ErrReply)
	}
	return e, err
}

// Store tells the server that a place holds keys, consecutive chunks of its group. keys
// are sent without being copied and only borrowed. After ErrConnect and ErrNoAnswer it may or may not have taken effect,
// as may Evict and Reset, and may still do so for a moment.
func (c *Client) Store(ctx context.Context, at GroupRank, keys netproto.Hashes) error {
	return c.change(ctx, netproto.TagStore, at, keys)
}

// StoreChain is Store for keys of which it is known where they stand in their
// chain: the first is chunk number firstChunk of its group, and before, unless it is
// empty, is the key in front of it. What is stored so can be looked up by anchors. The keys
// are copied if before is given.
func (c *Client) StoreChain(ctx context.Context, at GroupRank, firstChunk uint32, before []byte, keys netproto.Hashes) error {
	if err := checkKeys(keys); err != nil {
		return err
	}
	blob, ch := keys.Bytes(), &chunks{number: firstChunk}
	if len(before) > 0 {
		if len(before) != keys.HashLen() {
			return fmt.Errorf("%w: the key in front has %d bytes, the keys have %d", ErrRequest, len(before), keys.HashLen())
		}
		joined := make([]byte, 0, len(blob)+2+len(before))
		joined = netproto.AppendFrame(append(joined, blob...), before, false)
		blob, ch.behind = joined, joined[len(blob):]
	}
	return c.command(ctx, request{tag: netproto.TagStore, rank: at, hashLen: keys.HashLen(), blob: blob, chunks: ch})
}

// Evict tells the server that a place no longer holds keys, which are as for
// Store.
func (c *Client) Evict(ctx context.Context, at GroupRank, keys netproto.Hashes) error {
	return c.change(ctx, netproto.TagEvict, at, keys)
}

func (c *Client) change(ctx context.Context, tag netproto.Tag, at GroupRank, keys netproto.Hashes) error {
	if err := checkKeys(keys); err != nil {
		return err
	}
	return c.command(ctx, request{tag: tag, rank: at, hashLen: keys.HashLen(), blob: keys.Bytes()})
}

// checkKeys refuses what is not a whole number of hashes.
func checkKeys(keys netproto.Hashes) error {
	if n := keys.HashLen(); n < 1 || n > netproto.MaxHashLen || len(keys.Blob())%n != 0 {
		return fmt.Errorf("%w: %d bytes are not a whole number of hashes of %d bytes (1 to %d)",
			ErrRequest, len(keys.Blob()), n, netproto.MaxHashLen)
	}
	return nil
}

// Reset makes the server forget every block.
func (c *Client) Reset(ctx context.Context) error {
	return c.command(ctx, request{tag: netproto.TagReset})
}

// Ping makes a round trip.
func (c *Client) Ping(ctx context.Context) error {
	return c.command(ctx, request{tag: netproto.TagPing})
}

// Stat returns the server's counters as it sent them; they decode into an api.Stat.
func (c *Client) Stat(ctx context.Context) (json.RawMessage, error) {
	doc, err := c.document(ctx, request{tag: netproto.TagStat})
	if err == nil && !json.Valid(doc) {
		return nil, fmt.Errorf("%w: stat without a JSON document", ErrReply)
	}
	return doc, err
}

// command makes a request that is answered 01.
func (c *Client) command(ctx context.Context, r request) error {
	_, err := c.answer(ctx, r)
	return err
}

// document makes a request that is answered 01 and a document, which it returns.
func (c *Client) document(ctx context.Context, r request) ([]byte, error) {
	frames, err := c.answer(ctx, r)
	if err != nil {
		return nil, err
	}
	if len(frames) != 2 {
		return nil, fmt.Errorf("%w: %s with %d frames", ErrReply, r.tag, len(frames))
	}
	return frames[1], nil
}

// answer makes a request whose reply begins with a status, and returns the reply.
func (c *Client) answer(ctx context.Context, r request) ([][]byte, error) {
	if c.pipe != nil {
		return c.pipe.answer(ctx, c.until(), r)
	}
	conn, err := c.exchange(ctx, c.untilFor(ctx), &r)
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

// cloneFrames copies what is borrowed.
func cloneFrames(frames [][]byte) [][]byte {
	if len(frames) == 1 && len(frames[0]) == 1 && frames[0][0] == netproto.StatusDone {
		return doneFrames
	}
	frames = slices.Clone(frames)
	for i := range frames {
		frames[i] = append([]byte{}, frames[i]...)
	}
	return frames
}

var doneFrames = [][]byte{{netproto.StatusDone}}

// hashesRequest returns a lookup or an explain. It refuses what their fields cannot hold.
func hashesRequest(tag netproto.Tag, numTokens int64, hashes netproto.Hashes) (request, error) {
	if n := hashes.HashLen(); n > math.MaxUint16 {
		return request{}, fmt.Errorf("%w: hash length %d does not fit 16 bits", ErrRequest, n)
	}
	if numTokens < 0 || numTokens > math.MaxUint32 {
		return request{}, fmt.Errorf("%w: %d tokens do not fit 32 bits", ErrRequest, numTokens)
	}
	return request{tag: tag, numTokens: uint32(numTokens), hashLen: hashes.HashLen(), blob: hashes.Blob()}, nil
}

// readHit returns the hit that a reply to a lookup gives.
func readHit(frames [][]byte) (uint64, error) {
	if err := refusal(frames); err != nil {
		return 0, err
	}
	return netproto.ParseInt(frames[0]), nil
}

// readStatus returns nil for a reply that begins with 01.
func readStatus(frames [][]byte) error {
	if err := refusal(frames); err != nil {
		return err
	}
	if len(frames[0]) != 1 || frames[0][0] != netproto.StatusDone {
		return fmt.Errorf("%w: status %x", ErrReply, frames[0])
	}
	return nil
}

// refusal returns the error for a reply 00, nil for any other.
func refusal(frames [][]byte) error {
	if len(frames[0]) != 1 || frames[0][0] != netproto.StatusFailed {
		return nil
	}
	if len(frames) > 1 {
		return fmt.Errorf("%w: %s", ErrRefused, frames[1])
	}
	return ErrRefused
}
