package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/replay"
	"github.com/hitline/hitline/bench/workload"
	"github.com/hitline/hitline/cmd/internal/cli"
	"github.com/hitline/hitline/cmd/internal/connectflags"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/client"
	"github.com/hitline/hitline/netproto"
)

// conn is one connection to a server.
type conn interface {
	replay.Target
	learn(ctx context.Context) (serverPool, error)
	Close() error
}

// dialFunc connects to addr, such as tcp://127.0.0.1:7557, with the token and TLS of
// connectflags.
type dialFunc func(ctx context.Context, addr string, secure connectflags.Connection) (conn, error)

// dial connects with hitline's own client.
var dial = dialWith(client.WithAnchors(0))

// dialWith returns dial with options of the client.
func dialWith(opts ...client.Option) dialFunc {
	return func(ctx context.Context, addr string, secure connectflags.Connection) (conn, error) {
		return dialClient(ctx, addr, secure, opts...)
	}
}

// dialAnchored is dial for a connection that looks up by anchors, whatever the length.
func dialAnchored(ctx context.Context, addr string, secure connectflags.Connection, opts ...client.Option) (anchoredConn, error) {
	c, err := dialClient(ctx, addr, secure, append(opts, client.WithAnchors(1))...)
	return anchoredConn{c}, err
}

// dialClient connects. Every call that a bench makes has a deadline, so the client's own would
// only shorten a longer one.
func dialClient(ctx context.Context, addr string, secure connectflags.Connection, opts ...client.Option) (clientConn, error) {
	c, err := client.Dial(ctx, addr, append(append(secure.Options(), client.WithTimeout(0)), opts...)...)
	return clientConn{c}, err
}

// clientConn makes a replay.Target of a client: group 0, rank 0, and refusals by
// the name that bench knows.
type clientConn struct{ *client.Client }

func (c clientConn) Lookup(ctx context.Context, numTokens uint32, hashes []byte, hashLen int) (uint32, error) {
	hit, err := c.Client.Lookup(ctx, int64(numTokens), netproto.NewHashes(hashes, hashLen))
	return uint32(hit.Tokens), refusal(err)
}

func (c clientConn) Store(ctx context.Context, keys []byte, hashLen int) error {
	return refusal(c.Client.Store(ctx, lookup.GroupRank{}, netproto.NewHashes(keys, hashLen)))
}

// serverPool is what replay learns of a server with one full-attention group.
type serverPool struct {
	blockSize  int  // tokens that one hash covers
	leavesLast bool // a prompt that is there whole hits a block less, as vLLM has it
}

// learn stores two random hashes, asks how many tokens they are, and evicts them.
func (c clientConn) learn(ctx context.Context) (p serverPool, err error) {
	blob := make([]byte, workload.ProbeHashes*workload.HashLen)
	_, _ = rand.Read(blob) // never fails
	hit, whole, err := workload.Probe(
		func() error { return c.Store(ctx, blob, workload.HashLen) },
		func(tokens uint32) (uint32, error) { return c.Lookup(ctx, tokens, blob, workload.HashLen) },
		func() error {
			return refusal(c.Evict(ctx, lookup.GroupRank{}, netproto.NewHashes(blob, workload.HashLen)))
		},
	)
	if err != nil {
		return p, err
	}
	p = serverPool{blockSize: int(hit / 2), leavesLast: whole < hit}
	if hit == 0 || hit%2 != 0 || whole != hit && whole != hit/2 {
		return p, fmt.Errorf("%w: to 2 stored hashes the server answered %d and %d tokens; replay needs a server of one full-attention group", measure.ErrAnswer, hit, whole)
	}
	return p, nil
}

func refusal(err error) error {
	if errors.Is(err, client.ErrRefused) {
		return fmt.Errorf("%w: %w", measure.ErrRefused, err)
	}
	return err
}

// anchoredConn stores chains, from their first block on, so that they can be looked up by anchors.
type anchoredConn struct{ clientConn }

func (c anchoredConn) Store(ctx context.Context, keys []byte, hashLen int) error {
	return refusal(c.Client.StoreChain(ctx, lookup.GroupRank{}, 0, nil, netproto.NewHashes(keys, hashLen)))
}

// counting is an option of clients that counts the bytes that they write.
func counting(written *atomic.Int64) client.Option {
	return client.WithDialer(func(ctx context.Context, network, address string) (net.Conn, error) {
		nc, err := new(net.Dialer).DialContext(ctx, network, address)
		return countedConn{nc, written}, err
	})
}

type countedConn struct {
	net.Conn
	written *atomic.Int64
}

func (c countedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.written.Add(int64(n))
	return n, err
}

// dialAll makes n connections to addr, each within timeout. The caller closes
// them; if one fails, those made before it are closed here.
func dialAll(ctx context.Context, dial dialFunc, addr string, secure connectflags.Connection, n int, timeout time.Duration) ([]conn, error) {
	conns := make([]conn, 0, n)
	for range n {
		dialCtx, cancel := context.WithTimeout(ctx, timeout)
		c, err := dial(dialCtx, addr, secure)
		cancel()
		if err != nil {
			closeAll(conns)
			return nil, fmt.Errorf("connection %d of %d to %s: %w", len(conns)+1, n, addr, err)
		}
		conns = append(conns, c)
	}
	return conns, nil
}

// server returns the address of the server to ask, which --connect or the environment names, and
// what the flags say of connections to it. It warns of a token that can be read on the network.
func (a *app) server(flags *connectflags.Flags) (addr string, c connectflags.Connection, err error) {
	if addr, err = flags.Address(); err != nil {
		return "", c, cli.WithClass(err, cli.ErrUsage)
	}
	if err := flags.Check(addr); err != nil {
		return "", c, cli.WithClass(err, cli.ErrUsage)
	}
	if c, err = flags.Load(addr); err != nil {
		return "", c, cli.WithClass(err, cli.ErrConfig)
	}
	if c.Warning != "" {
		fmt.Fprintf(a.stderr, "hitbench: %s\n", c.Warning)
	}
	return addr, c, nil
}

// closeAll closes connections that nobody waits on, so errors have no meaning.
func closeAll(conns []conn) {
	for _, c := range conns {
		_ = c.Close()
	}
}
