package main

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/server"
)

// startServer starts a real server in this process, on a free port if no listeners are given.
func startServer(cfg lookup.ServiceConfig, listeners ...server.Listener) (*server.Server, error) {
	service, err := lookup.NewService(cfg)
	if err != nil {
		return nil, err
	}
	if len(listeners) == 0 {
		listeners = []server.Listener{{Address: "tcp://127.0.0.1:0"}}
	}
	s, err := server.New(service, server.Config{Listeners: listeners})
	if err != nil {
		return nil, err
	}
	return s, s.Start(context.Background())
}

// serve starts one until the test ends.
func serve(t *testing.T, cfg lookup.ServiceConfig, listeners ...server.Listener) *server.Server {
	t.Helper()
	s, err := startServer(cfg, listeners...)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		assert.NoError(t, s.Shutdown(ctx))
	})
	return s
}

// serveAsHitline is what this test binary does as "hitline serve": a server whose
// hashes cover 16 tokens, whatever it is told.
func serveAsHitline() {
	s, err := startServer(lookup.ServiceConfig{Pool: coordinator.Pool{HashBlockSize: 16}})
	if err != nil {
		panic(err)
	}
	fmt.Fprintf(os.Stderr, "{\"msg\":\"ready\",\"listen\":[%q]}\n", s.Addrs()[0])
	<-s.Done()
}
