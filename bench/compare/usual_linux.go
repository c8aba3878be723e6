package compare

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"github.com/hitline/hitline/bench/wire"
	"io"
	"net"
	"strings"
	"time"

	hitline "github.com/hitline/hitline/lookup/client"
	"github.com/hitline/hitline/netproto"
)

// hitlineClient asks hitline by the client of this module.
type hitlineClient struct {
	client *hitline.Client
	load   *chainSet
}

// connectHitline returns how hitline at addr is asked by its own client, on one
// connection.
func connectHitline(addr string, timeout time.Duration) func(context.Context, *chainSet) (client, error) {
	return func(ctx context.Context, w *chainSet) (client, error) {
		c, err := hitline.Dial(ctx, addr, hitline.WithConnections(1), hitline.WithTimeout(timeout))
		if err != nil {
			return nil, wire.Lost(err)
		}
		return oneByOne{&hitlineClient{client: c, load: w}}, nil
	}
}

// fillHitline returns how the chains are stored with hitline: as chains, so that they
// can be looked up by anchors, which its client does with long prompts.
func fillHitline(addr string, timeout time.Duration) *data {
	return &data{fill: func(ctx context.Context, w *chainSet) error {
		c, err := hitline.Dial(ctx, addr, hitline.WithConnections(1), hitline.WithTimeout(timeout))
		if err != nil {
			return wire.Lost(err)
		}
		defer func() { _ = c.Close() }() // nothing is lost with it
		for i := range w.len() {
			if err := c.StoreChain(ctx, netproto.GroupRank{}, 0, nil, netproto.NewHashes(w.chain(i), hashLen)); err != nil {
				return wire.Lost(err)
			}
		}
		return nil
	}}
}

func (c *hitlineClient) prepare() error { return nil }

func (c *hitlineClient) close() { _ = c.client.Close() } // nothing is lost with it

func (c *hitlineClient) askOne(ctx context.Context, r request) (answer, error) {
	c.load.put(r)
	hashes := c.load.chain(r.chain)
	start := time.Now()
	hit, err := c.client.Lookup(ctx, int64(c.load.tokens), netproto.NewHashes(hashes, hashLen))
	took := time.Since(start)
	if err != nil {
		return answer{}, wire.Lost(err)
	}
	return answer{uint32(hit.Tokens), took}, nil
}

// netClient asks ServeMap as a program in Go does that has no client for it: by a
// net.Conn with a buffer for what it writes.
type netClient struct {
	conn    net.Conn
	out     *bufio.Writer
	load    *chainSet
	timeout time.Duration

	stopWatching func() bool // the context
}

// connectNet returns how a ServeMap at addr is asked by a net.Conn.
func connectNet(addr string, timeout time.Duration) func(context.Context, *chainSet) (client, error) {
	return func(ctx context.Context, w *chainSet) (client, error) {
		dialer := net.Dialer{Timeout: timeout}
		conn, err := dialer.DialContext(ctx, "tcp", strings.TrimPrefix(addr, "tcp://"))
		if err != nil {
			return nil, wire.Lost(err)
		}
		c := &netClient{conn: conn, out: bufio.NewWriter(conn), load: w, timeout: timeout}
		c.stopWatching = context.AfterFunc(ctx, func() { conn.Close() })
		return oneByOne{c}, nil
	}
}

func (c *netClient) prepare() error { return nil }

func (c *netClient) close() {
	c.stopWatching()
	c.conn.Close()
}

func (c *netClient) askOne(_ context.Context, r request) (answer, error) {
	c.load.put(r)
	hashes := c.load.chain(r.chain)
	start := time.Now()
	hit, err := c.lookup(c.load.tokens, hashes)
	took := time.Since(start)
	if err != nil {
		return answer{}, wire.Lost(err)
	}
	return answer{hit, took}, nil
}

// lookup makes one exchange.
func (c *netClient) lookup(tokens uint32, hashes []byte) (hit uint32, err error) {
	if err := c.conn.SetDeadline(time.Now().Add(c.timeout)); err != nil {
		return 0, err
	}
	var head [4 + mapHead]byte
	if _, err := c.out.Write(appendPlainHead(head[:0], mapLookup, tokens, len(hashes))); err != nil {
		return 0, err
	}
	if _, err := c.out.Write(hashes); err != nil {
		return 0, err
	}
	if err := c.out.Flush(); err != nil {
		return 0, err
	}
	var reply [4]byte
	if _, err := io.ReadFull(c.conn, reply[:]); err != nil {
		return 0, fmt.Errorf("reading: %w", err)
	}
	return binary.BigEndian.Uint32(reply[:]), nil
}
