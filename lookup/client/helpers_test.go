package client

import (
	"context"
	"encoding/binary"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/server"
)

func TestMain(m *testing.M) { lookuptest.Main(m) }

// blocks16 is a service of one full-attention group of 16 tokens on one rank.
var blocks16 = lookup.ServiceConfig{Pool: lookuptest.Blocks16}

// testServer is a server that these tests ask, and what it serves.
type testServer struct {
	*server.Server
	service *lookup.Service
}

func startServer(t testing.TB, cfg lookup.ServiceConfig, limits server.Limits) testServer {
	t.Helper()
	return startLogging(t, cfg, limits, slog.New(slog.DiscardHandler))
}

func startLogging(t testing.TB, cfg lookup.ServiceConfig, limits server.Limits, logger *slog.Logger) testServer {
	t.Helper()
	s, err := serveOn(t, cfg, server.Config{Listeners: []server.Listener{{Address: "tcp://127.0.0.1:0"}}, Loops: 2, Limits: limits, Logger: logger})
	require.NoError(t, err)
	return s
}

// serveOn starts a server that ends with the test.
func serveOn(t testing.TB, cfg lookup.ServiceConfig, serve server.Config) (testServer, error) {
	t.Helper()
	service, err := lookup.NewService(cfg)
	require.NoError(t, err)
	s, err := server.New(service, serve)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), lookuptest.Patience)
	defer cancel()
	if err := s.Start(ctx); err != nil {
		return testServer{}, err
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		_ = s.Shutdown(ctx)
	})
	return testServer{s, service}, nil
}

// dialTest connects a client that ends with the test.
func dialTest(t testing.TB, s testServer, opts ...Option) *Client {
	t.Helper()
	return dialAs(t, s.Addrs()[0], opts...)
}

func statOf(t testing.TB, c *Client) (st api.Stat) {
	t.Helper()
	st, err := c.Stat(context.Background())
	require.NoError(t, err)
	return st
}

// dialAs connects with options behind the usual ones.
func dialAs(t testing.TB, addr string, opts ...Option) *Client {
	t.Helper()
	c, err := Dial(background, addr, append([]Option{WithTimeout(lookuptest.Patience)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// u32s encodes numbers of 32 bits.
func u32s(numbers ...uint32) (b []byte) {
	for _, n := range numbers {
		b = binary.BigEndian.AppendUint32(b, n)
	}
	return b
}
