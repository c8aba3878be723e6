//go:build linux && !race

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/storetest"
)

// startFaultyRedis starts a server on which all keys exist. While fault is set, it is the
// answer to EXISTS.
func startFaultyRedis(t *testing.T) (addr string, fault *atomic.Pointer[string]) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = ln.Close() })
	fault = new(atomic.Pointer[string])
	serve := func(conn net.Conn) {
		defer conn.Close()
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
				answer = fmt.Sprintf(":%d\r\n", numArgs-1)
				if f := fault.Load(); f != nil {
					answer = *f
				}
			}
			_, _ = io.WriteString(conn, answer)
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
	return ln.Addr().String(), fault
}

// maxAddressSpace is the address space of the server in the test, in KiB. Three strings of 2 GB
// do not fit in.
const maxAddressSpace = 5_500_000

// A Redis that announces strings of 2 GB does not end a server of little memory. Lookups are
// hits of 0, and stat answers. When the Redis is well, lookups hit.
func TestServeSurvivesAHugeAnnouncement(t *testing.T) {
	addr, fault := startFaultyRedis(t)
	self, err := os.Executable()
	require.NoError(t, err)
	config := configFile(t, "pool: {model_name: m}\nbackend: {redis: {url: \"redis://"+addr+"\", timeout: 20s}}\nlog: {format: json}\n")
	cmd := exec.Command("sh", "-c", fmt.Sprintf(`ulimit -v %d && exec "$0" serve --listen tcp://127.0.0.1:0 --config "$1"`, maxAddressSpace), self, config)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	log, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(log)
	address := readyLine(t, lines)
	go func() { _, _ = io.Copy(io.Discard, log) }()

	look := func(seed int) string {
		got := hitline(t, fmt.Sprintf("%064x\n", seed), "lookup", "--tokens", "16", "--hashes-file", "-", "--connect", address)
		if got.code == exitFailed && strings.Contains(got.stderr, "a hit of 0, ") {
			return "0"
		}
		assert.Equal(t, exitDone, got.code, got.stderr)
		return strings.TrimSpace(got.stdout)
	}
	require.Equal(t, "16", look(1))
	for _, announcement := range []string{"$2147483647\r\n", "*2147483647\r\n", "!2147483647\r\n"} {
		fault.Store(&announcement)
		var lookups sync.WaitGroup
		for i := range 8 {
			lookups.Go(func() { assert.Equal(t, "0", look(i+2)) })
		}
		lookups.Wait()
	}
	stat := hitline(t, "", "stat", "--json", "--connect", address)
	require.Equal(t, exitDone, stat.code, stat.stderr)
	var counters struct {
		BackendErrors int64 `json:"backend_errors"`
	}
	require.NoError(t, json.Unmarshal([]byte(stat.stdout), &counters))
	require.Positive(t, counters.BackendErrors)
	fault.Store(nil)
	storetest.Eventually(t, "lookups hit again", func() bool { return look(100) == "16" })
}
