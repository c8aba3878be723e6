package compare

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/hitline/hitline/bench/wire"
	"github.com/hitline/hitline/bench/workload"
	hitline "github.com/hitline/hitline/lookup/client"
	"github.com/hitline/hitline/netproto"
)

// ownClient makes clients of lookup/client for a hitline.
type ownClient struct {
	addr    string
	timeout time.Duration
	token   string
}

func (s *servers) ownClient(addr string) ownClient {
	o := ownClient{addr: addr, timeout: s.o.Timeout}
	if s.o.Token != nil {
		o.token = s.o.Token()
	}
	return o
}

// dial makes a client with one connection.
func (o ownClient) dial(ctx context.Context, w *lookups, more ...hitline.Option) (*hitlineClient, error) {
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	c, err := hitline.Dial(ctx, o.addr, append(more, hitline.WithConnections(1), hitline.WithToken(o.token))...)
	if err != nil {
		return nil, lost(err)
	}
	return &hitlineClient{client: c, load: w}, nil
}

// connect makes a client with the defaults.
func (o ownClient) connect(ctx context.Context, w *lookups) (client, error) {
	c, err := o.dial(ctx, w, hitline.WithTimeout(o.timeout))
	return oneByOne{c}, err
}

// connectAnchored makes a client that asks by anchors, whatever the length, over a socket that
// blocks. The socket bounds its calls: a timeout of the client would wake the runtime's poller.
func (o ownClient) connectAnchored(ctx context.Context, w *lookups) (client, error) {
	c, err := o.dial(ctx, w, hitline.WithTimeout(0), hitline.WithAnchors(1), hitline.WithDialer(wire.Dialer(o.timeout)))
	return oneByOne{c}, err
}

// fill stores the chains as chains, so that they can be looked up by anchors, which the client
// does with long prompts.
func (o ownClient) fill(ctx context.Context, w *lookups) error {
	c, err := o.dial(ctx, w, hitline.WithTimeout(o.timeout))
	if err != nil {
		return err
	}
	defer c.close()
	for i := range w.Len() {
		if err := c.client.StoreChain(ctx, netproto.GroupRank{}, 0, nil, netproto.NewHashes(w.Chain(i), hashLen)); err != nil {
			return fmt.Errorf("chain %d: %w", i, lost(err))
		}
	}
	return nil
}

// hitlineClient asks hitline by the client of this module.
type hitlineClient struct {
	prepared
	client *hitline.Client
	load   *lookups
}

func (c *hitlineClient) close() { _ = c.client.Close() } // nothing is lost with it

func (c *hitlineClient) askOne(ctx context.Context, l workload.Lookup) (answer, error) {
	hashes := netproto.NewHashes(c.load.Put(l), hashLen)
	start := time.Now()
	hit, err := c.client.Lookup(ctx, int64(c.load.tokens()), hashes)
	took := time.Since(start)
	if err != nil {
		return answer{}, lost(err)
	}
	return answer{uint32(hit.Tokens), took}, nil
}

// netClient asks ServeMap as a program in Go does that has no client for it: by a
// net.Conn with a buffer for what it writes.
type netClient struct {
	prepared
	conn    net.Conn
	out     *bufio.Writer
	load    *lookups
	timeout time.Duration

	stopWatching func() bool // the context
}

// connectNet returns how a ServeMap at addr is asked by a net.Conn.
func connectNet(addr string, timeout time.Duration) func(context.Context, *lookups) (client, error) {
	return func(ctx context.Context, w *lookups) (client, error) {
		dialer := net.Dialer{Timeout: timeout}
		conn, err := dialer.DialContext(ctx, "tcp", strings.TrimPrefix(addr, "tcp://"))
		if err != nil {
			return nil, lost(err)
		}
		c := &netClient{conn: conn, out: bufio.NewWriter(conn), load: w, timeout: timeout}
		c.stopWatching = context.AfterFunc(ctx, func() { conn.Close() })
		return oneByOne{c}, nil
	}
}

func (c *netClient) close() {
	c.stopWatching()
	c.conn.Close()
}

func (c *netClient) askOne(_ context.Context, l workload.Lookup) (answer, error) {
	hashes := c.load.Put(l)
	start := time.Now()
	hit, err := c.lookup(c.load.tokens(), hashes)
	return answer{hit, time.Since(start)}, lost(err)
}

// lookup makes one exchange.
func (c *netClient) lookup(tokens uint32, hashes []byte) (hit uint32, err error) {
	if err := c.conn.SetDeadline(time.Now().Add(c.timeout)); err != nil {
		return 0, err
	}
	var head [4 + mapHead]byte
	_, _ = c.out.Write(appendPlainHead(head[:0], mapLookup, tokens, len(hashes))) // Flush has the error
	_, _ = c.out.Write(hashes)
	if err := c.out.Flush(); err != nil {
		return 0, err
	}
	var reply [hitLen]byte
	if _, err := io.ReadFull(c.conn, reply[:]); err != nil {
		return 0, fmt.Errorf("reading: %w", err)
	}
	return binary.BigEndian.Uint32(reply[:]), nil
}
