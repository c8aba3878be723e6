package lookup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/hitline/hitline/netproto"
)

// Client asks a server, one request at a time. Safe for concurrent use: callers
// wait for each other. After an error that wraps ErrConnect or ErrReply the
// connection is closed and every later call fails with ErrConnect: dial anew.
type Client struct {
	timeout time.Duration

	mu     sync.Mutex
	conn   net.Conn
	broken error
	head   []byte      // the request but for its blob, reused
	parts  [2][]byte   // backing of bufs
	bufs   net.Buffers // head and blob, written without joining them
	in     []byte      // bytes of the reply under way
	have   int         // how many
	frames [][]byte    // of the reply, borrowed from in
}

// ClientOption changes how a Client works.
type ClientOption func(*Client)

// DefaultTimeout bounds a request whose context has no earlier deadline.
const DefaultTimeout = 10 * time.Second

// WithTimeout bounds each request, and the dialling, by d; 0 or less means no
// bound but the context's.
func WithTimeout(d time.Duration) ClientOption { return func(c *Client) { c.timeout = d } }

// Dial connects to a server at tcp://host:port or host:port.
func Dial(ctx context.Context, addr string, opts ...ClientOption) (*Client, error) {
	c := newClient(nil, opts...)
	target := strings.TrimPrefix(addr, "tcp://")
	if strings.Contains(target, "://") {
		return nil, fmt.Errorf("%w: address %q: only tcp://host:port is served", ErrRequest, addr)
	}
	if c.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.timeout)
		defer cancel()
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", target)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConnect, err)
	}
	c.conn = conn
	return c, nil
}

func newClient(conn net.Conn, opts ...ClientOption) *Client {
	c := &Client{conn: conn, timeout: DefaultTimeout, in: make([]byte, 512)}
	for _, o := range opts {
		o(c)
	}
	return c
}

// Close closes the connection.
func (c *Client) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken == nil {
		c.broken = errors.New("client is closed")
	}
	return c.conn.Close()
}

// Lookup asks how many leading tokens of a prompt of numTokens are in the pool.
// hashes are its block hashes of hashLen bytes, joined; they are sent without
// being copied and not kept. A trailing partial hash stands for nothing. hashLen
// is 0 when there are no hashes.
func (c *Client) Lookup(ctx context.Context, numTokens uint32, hashes []byte, hashLen int) (hitTokens uint32, err error) {
	hit, err := c.lookup(ctx, numTokens, hashes, hashLen)
	if err == nil && hit > math.MaxUint32 {
		err = fmt.Errorf("%w: a hit of %d tokens", ErrReply, hit)
	}
	if err != nil {
		return 0, err
	}
	return uint32(hit), nil
}

// lookup reads the hit as the reference client does: an integer of any length,
// saturated.
func (c *Client) lookup(ctx context.Context, numTokens uint32, hashes []byte, hashLen int) (uint64, error) {
	if err := checkHashLen(hashLen); err != nil {
		return 0, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.head = netproto.AppendLookup(c.head[:0], nil, numTokens, hashLen, len(hashes))
	if err := c.exchange(ctx, hashes); err != nil {
		return 0, err
	}
	if err := refusal(c.frames); err != nil {
		return 0, err
	}
	return netproto.ParseInt(c.frames[0]), nil
}

// Explain asks why a lookup hits no more than it does. It neither counts as a
// lookup nor keeps blocks from being evicted.
func (c *Client) Explain(ctx context.Context, numTokens uint32, hashes []byte, hashLen int) (Explanation, error) {
	var e Explanation
	if err := checkHashLen(hashLen); err != nil {
		return e, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.head = netproto.AppendExplain(c.head[:0], nil, numTokens, hashLen, len(hashes))
	if err := c.command(ctx, hashes); err != nil {
		return e, err
	}
	if len(c.frames) != 2 || json.Unmarshal(c.frames[1], &e) != nil {
		return e, c.breakOff(fmt.Errorf("%w: explain without its JSON document", ErrReply))
	}
	return e, nil
}

// Store tells the server that a place holds keys, consecutive chunks of its
// group, joined. keys is sent without being copied and not kept.
func (c *Client) Store(ctx context.Context, at Place, keys []byte, hashLen int) error {
	return c.keys(ctx, netproto.TagStore, at, keys, hashLen)
}

// Evict tells the server that a place no longer holds keys.
func (c *Client) Evict(ctx context.Context, at Place, keys []byte, hashLen int) error {
	return c.keys(ctx, netproto.TagEvict, at, keys, hashLen)
}

func (c *Client) keys(ctx context.Context, tag netproto.Tag, at Place, keys []byte, hashLen int) error {
	if hashLen < 1 || hashLen > netproto.MaxHashLen || len(keys)%hashLen != 0 {
		return fmt.Errorf("%w: %d bytes are not a whole number of hashes of %d bytes (1 to %d)",
			ErrRequest, len(keys), hashLen, netproto.MaxHashLen)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.head = netproto.AppendKeys(c.head[:0], nil, tag, at, hashLen, len(keys))
	return c.command(ctx, keys)
}

// Reset makes the server forget every block.
func (c *Client) Reset(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.head = netproto.AppendRequest(c.head[:0], nil, netproto.TagReset)
	return c.command(ctx, nil)
}

// Ping makes a round trip.
func (c *Client) Ping(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.head = netproto.AppendRequest(c.head[:0], nil, netproto.TagPing)
	return c.command(ctx, nil)
}

// Stat returns the server's counters as it sent them; they decode into a Stat.
func (c *Client) Stat(ctx context.Context) (json.RawMessage, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.head = netproto.AppendRequest(c.head[:0], nil, netproto.TagStat)
	if err := c.command(ctx, nil); err != nil {
		return nil, err
	}
	if len(c.frames) != 2 || !json.Valid(c.frames[1]) {
		return nil, c.breakOff(fmt.Errorf("%w: stat without a JSON document", ErrReply))
	}
	return append(json.RawMessage(nil), c.frames[1]...), nil
}

// command exchanges a request whose reply begins with a status.
func (c *Client) command(ctx context.Context, blob []byte) error {
	if err := c.exchange(ctx, blob); err != nil {
		return err
	}
	if err := refusal(c.frames); err != nil {
		return err
	}
	if len(c.frames[0]) != 1 || c.frames[0][0] != netproto.StatusDone {
		return c.breakOff(fmt.Errorf("%w: status %x", ErrReply, c.frames[0]))
	}
	return nil
}

// checkHashLen refuses what a lookup's field for it cannot hold.
func checkHashLen(hashLen int) error {
	if hashLen < 0 || hashLen > math.MaxUint16 {
		return fmt.Errorf("%w: hash length %d does not fit 16 bits", ErrRequest, hashLen)
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

// exchange sends head and blob and reads one reply into frames.
func (c *Client) exchange(ctx context.Context, blob []byte) error {
	if c.broken != nil {
		return fmt.Errorf("%w: %w", ErrConnect, c.broken)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := c.setDeadline(); err != nil {
		return c.breakOff(fmt.Errorf("%w: %w", ErrConnect, err))
	}
	if ctx.Done() != nil {
		stop := context.AfterFunc(ctx, func() { _ = c.conn.SetDeadline(longAgo) })
		defer stop()
	}
	err := c.write(blob)
	if err == nil {
		err = c.read()
	}
	if err == nil {
		return nil
	}
	if cause := ctx.Err(); cause != nil {
		err = cause
	}
	if !errors.Is(err, ErrReply) {
		err = fmt.Errorf("%w: %w", ErrConnect, err)
	}
	return c.breakOff(err)
}

// longAgo as a deadline wakes a read or write at once.
var longAgo = time.Unix(1, 0)

// setDeadline bounds the request by the client's timeout; the context's end is
// watched for separately, so that its error is the one that is reported.
func (c *Client) setDeadline() error {
	var at time.Time
	if c.timeout > 0 {
		at = time.Now().Add(c.timeout)
	}
	return c.conn.SetDeadline(at)
}

func (c *Client) write(blob []byte) error {
	if len(blob) == 0 {
		_, err := c.conn.Write(c.head)
		return err
	}
	c.parts = [2][]byte{c.head, blob}
	c.bufs = c.parts[:]
	_, err := c.bufs.WriteTo(c.conn)
	c.parts = [2][]byte{}
	return err
}

// read fills in until it holds one reply.
func (c *Client) read() error {
	c.have = 0
	for {
		n, err := c.conn.Read(c.in[c.have:])
		c.have += n
		frames, used, parseErr := netproto.ParseMessage(c.in[:c.have], netproto.Limits{}, c.frames[:0])
		switch {
		case parseErr == nil && used == c.have:
			c.frames = frames
			return nil
		case parseErr == nil:
			return fmt.Errorf("%w: %d bytes behind it", ErrReply, c.have-used)
		case !errors.Is(parseErr, netproto.ErrShort):
			return fmt.Errorf("%w: %w", ErrReply, parseErr)
		case err != nil:
			return err
		}
		if c.have == len(c.in) {
			c.in = append(c.in, make([]byte, len(c.in))...)
		}
	}
}

// breakOff closes the connection: what state it is in is unknown.
func (c *Client) breakOff(err error) error {
	c.broken = err
	_ = c.conn.Close()
	return err
}
