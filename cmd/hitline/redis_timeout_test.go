package main

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/backend"
	"github.com/hitline/hitline/cmd/hitline/internal/config"
)

// startSlowRedis starts a server that answers each EXISTS of one key after pause. calls
// counts them.
func startSlowRedis(t *testing.T, pause time.Duration) (addr string, calls *atomic.Int64) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = ln.Close() })
	calls = new(atomic.Int64)
	serve := func(conn net.Conn) {
		defer conn.Close()
		for in := bufio.NewReader(conn); ; {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			switch strings.ToLower(strings.TrimSpace(line)) {
			case "hello", "info":
				_, _ = io.WriteString(conn, "-ERR unknown command\r\n")
			case "ping":
				_, _ = io.WriteString(conn, "+PONG\r\n")
			case "exists":
				calls.Add(1)
				time.Sleep(pause)
				_, _ = io.WriteString(conn, ":1\r\n")
			}
		}
	}
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go serve(conn)
		}
	}()
	return ln.Addr().String(), calls
}

// backend.redis.timeout bounds one wait for the server, also above three seconds. The driver
// does not repeat the command before.
func TestRedisTimeoutIsObeyed(t *testing.T) {
	t.Parallel() // it waits
	addr, calls := startSlowRedis(t, 3200*time.Millisecond)
	cfg, err := config.Load(config.Source{File: configFile(t, "pool: {model_name: m}\nbackend: {redis: {url: \"redis://"+addr+"\", timeout: 1m}}\n")})
	require.NoError(t, err)
	store, err := openStore(cfg, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	defer store.Close()
	ctx, cancel := context.WithTimeout(context.Background(), store.remote.Timeout)
	defer cancel()
	answers, err := store.Exists(ctx, backend.KeyList{"m@tp_rank:0@pcp0@dcp0@pp_rank:0@group:0@00"}, false)
	require.NoError(t, err)
	require.Equal(t, []int{1}, answers)
	require.EqualValues(t, 1, calls.Load())
}
