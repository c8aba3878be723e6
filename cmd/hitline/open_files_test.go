package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/logtest"
)

func TestHTTPConns(t *testing.T) {
	for openFiles, want := range map[uint64]int{0: 1, 300: 37, 1024: 128, 65536: 1024, 1<<64 - 1: 1024} {
		require.Equal(t, want, httpConns(maxRouterConns, openFiles), openFiles)
	}
}

// With few file descriptors, and silent connections at all ports, health is answered and no port runs out of them.
func TestHealthWithFewOpenFiles(t *testing.T) {
	for _, files := range []int{256, 512} {
		t.Run(fmt.Sprint(files), func(t *testing.T) {
			file := configFile(t, "metrics: 127.0.0.1:0\nloops: 2\nlog: {format: json, level: debug}\n"+
				"router: {listen: 127.0.0.1:0, models: [{name: m, block_size: 16}]}\n")
			cmd := programIn(t, fmt.Sprint("ulimit -n ", files), "serve", "--listen", "tcp://127.0.0.1:0", "--config", file)
			reader, err := cmd.StderrPipe()
			require.NoError(t, err)
			require.NoError(t, cmd.Start())
			lines := bufio.NewScanner(reader)
			ready := awaitReadyLine(t, lines)
			var log logtest.Buffer
			go func() { _, _ = io.Copy(&log, reader) }()

			for address, n := range map[string]int{strings.TrimPrefix(ready.Listen[0], "tcp://"): files, ready.Router: files / 4, ready.Metrics: files / 4} {
				for range n {
					conn, err := net.DialTimeout("tcp", address, 20*time.Second)
					require.NoError(t, err)
					defer conn.Close()
				}
			}
			o := &testServer{metrics: ready.Metrics}
			status, _ := o.get(t, "GET", "/healthz")
			assert.Equal(t, 200, status)
			status, body := o.get(t, "GET", "/metrics")
			assert.Equal(t, 200, status)
			assert.Contains(t, body, "\nhitline_accept_errors_total 0\n")
			assert.NotContains(t, log.String(), "too many open files")
		})
	}
}
