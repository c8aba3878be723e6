package main

import (
	"bufio"
	"context"
	"fmt"
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

// startFakeRedis starts a server that answers a question for keys with what exists returns.
func startFakeRedis(t *testing.T, exists func(keys int) string) (addr string) {
	t.Helper()
	return strings.TrimPrefix(listenAndServe(t, func(conn net.Conn) {
		numArgs := 0
		for in := bufio.NewReader(conn); ; {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			answer := ""
			switch line = strings.ToLower(strings.TrimSpace(line)); {
			case strings.HasPrefix(line, "*"):
				_, _ = fmt.Sscanf(line, "*%d", &numArgs)
			case line == "hello" || line == "info":
				answer = "-ERR unknown command\r\n"
			case line == "ping":
				answer = "+PONG\r\n"
			case line == "exists":
				answer = exists(numArgs - 1)
			}
			_, _ = io.WriteString(conn, answer)
		}
	}), "tcp://")
}

// backend.redis.timeout bounds one wait for the server, also above three seconds. The driver
// does not repeat the command before.
func TestRedisTimeoutIsObeyed(t *testing.T) {
	t.Parallel() // it waits
	var calls atomic.Int64
	addr := startFakeRedis(t, func(int) string {
		calls.Add(1)
		time.Sleep(3200 * time.Millisecond)
		return ":1\r\n"
	})
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
