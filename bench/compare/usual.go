package compare

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/wire"
	"github.com/hitline/hitline/bench/workload"
	hitline "github.com/hitline/hitline/lookup/client"
	"github.com/hitline/hitline/netproto"
)

// lost marks an error of a connection, and a refusal as such.
func lost(err error) error {
	if errors.Is(err, hitline.ErrRefused) {
		return fmt.Errorf("%w: %w", measure.ErrRefused, err)
	}
	return wire.Lost(err)
}

// dialHitline makes a client of this module with one connection.
func (s *servers) dialHitline(ctx context.Context, addr string, more ...hitline.Option) (*hitline.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	options := append([]hitline.Option{hitline.WithTimeout(s.o.Timeout), hitline.WithConnections(1)}, more...)
	if s.o.Token != nil {
		options = append(options, hitline.WithToken(s.o.Token()))
	}
	c, err := hitline.Dial(ctx, addr, options...)
	return c, lost(err)
}

// connectHitline returns how hitline is asked by the client of this module.
func (s *servers) connectHitline(addr string, more ...hitline.Option) func(context.Context) (client, error) {
	return func(ctx context.Context) (client, error) {
		c, err := s.dialHitline(ctx, addr, more...)
		if err != nil {
			return client{}, err
		}
		ask := func(ctx context.Context, l workload.Lookup) (answer, error) {
			hashes := netproto.NewHashes(s.load.Put(l), hashLen)
			start := time.Now()
			hit, err := c.Lookup(ctx, int64(s.load.tokens()), hashes)
			return answer{uint32(hit.Tokens), time.Since(start)}, lost(err)
		}
		return client{ask: ask, close: func() { _ = c.Close() }}, nil // nothing is lost with it
	}
}

// fillHitline stores the chains.
func (s *servers) fillHitline(ctx context.Context, addr string) error {
	c, err := s.dialHitline(ctx, addr)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }() // nothing is lost with it
	for i := range s.load.Len() {
		if err := c.Store(ctx, netproto.GroupRank{}, netproto.NewHashes(s.load.Chain(i), hashLen)); err != nil {
			return fmt.Errorf("chain %d: %w", i, lost(err))
		}
	}
	return nil
}

// netClient asks ServeMap as a program in Go does that has no client for it: by a
// net.Conn with a buffer for what it writes.
type netClient struct {
	conn    net.Conn
	out     *bufio.Writer
	timeout time.Duration
}

// connectNet returns how a ServeMap at addr is asked by a net.Conn.
func (s *servers) connectNet(addr string) func(context.Context) (client, error) {
	return func(ctx context.Context) (client, error) {
		dialer := net.Dialer{Timeout: s.o.Timeout}
		conn, err := dialer.DialContext(ctx, "tcp", strings.TrimPrefix(addr, "tcp://"))
		if err != nil {
			return client{}, lost(err)
		}
		c := &netClient{conn, bufio.NewWriter(conn), s.o.Timeout}
		stopWatching := context.AfterFunc(ctx, func() { conn.Close() })
		ask := func(_ context.Context, l workload.Lookup) (answer, error) {
			hashes := s.load.Put(l)
			start := time.Now()
			hit, err := c.lookup(s.load.tokens(), hashes)
			return answer{hit, time.Since(start)}, lost(err)
		}
		return client{ask: ask, close: func() { stopWatching(); conn.Close() }}, nil
	}
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
