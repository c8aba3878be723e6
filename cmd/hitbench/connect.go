package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hitline/hitline/bench"
	"github.com/hitline/hitline/lookup"
)

// conn is one connection to a server.
type conn interface {
	bench.Target
	Close() error
}

// dialFunc connects to addr, such as tcp://127.0.0.1:7557.
type dialFunc func(ctx context.Context, addr string) (conn, error)

// dial connects with hitline's own client. Every call that a bench makes has a
// deadline, so the client's own would only shorten a longer one.
func dial(ctx context.Context, addr string) (conn, error) {
	c, err := lookup.Dial(ctx, addr, lookup.WithTimeout(0))
	if err != nil {
		return nil, err
	}
	return clientConn{c}, nil
}

// clientConn makes a bench.Target of a client: group 0, rank 0, and refusals by
// the name that bench knows.
type clientConn struct{ *lookup.Client }

func (c clientConn) Lookup(ctx context.Context, numTokens uint32, hashes []byte, hashLen int) (uint32, error) {
	tokens, err := c.Client.Lookup(ctx, numTokens, hashes, hashLen)
	return tokens, refusal(err)
}

func (c clientConn) Store(ctx context.Context, keys []byte, hashLen int) error {
	return refusal(c.Client.Store(ctx, lookup.Place{}, keys, hashLen))
}

func refusal(err error) error {
	if errors.Is(err, lookup.ErrRefused) {
		return fmt.Errorf("%w: %w", bench.ErrRefused, err)
	}
	return err
}

// dialAll makes n connections to addr, each within timeout. The caller closes
// them; if one fails, those made before it are closed here.
func (a *app) dialAll(ctx context.Context, addr string, n int, timeout time.Duration) ([]conn, error) {
	conns := make([]conn, 0, n)
	for range n {
		dialCtx, cancel := context.WithTimeout(ctx, timeout)
		c, err := a.dial(dialCtx, addr)
		cancel()
		if err != nil {
			closeAll(conns)
			return nil, fmt.Errorf("connection %d of %d to %s: %w", len(conns)+1, n, addr, err)
		}
		conns = append(conns, c)
	}
	return conns, nil
}

// closeAll closes connections that nobody waits on, so errors have no meaning.
func closeAll(conns []conn) {
	for _, c := range conns {
		_ = c.Close()
	}
}
