//go:build linux && !race

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/storetest"
)

// maxAddressSpace is the address space of the server in the test, in KiB. Three strings of 2 GB
// do not fit in.
const maxAddressSpace = 5_500_000

// A Redis that announces strings of 2 GB does not end a server of little memory. Lookups are
// hits of 0, and stat answers. When the Redis is well, lookups hit.
func TestServeSurvivesAHugeAnnouncement(t *testing.T) {
	var fault atomic.Pointer[string] // the answer to lookups, while it is set
	addr := startFakeRedis(t, func(keys int) string {
		if f := fault.Load(); f != nil {
			return *f
		}
		return fmt.Sprintf(":%d\r\n", keys)
	})
	config := configFile(t, "pool: {model_name: m}\nbackend: {redis: {url: \"redis://"+addr+"\", timeout: 20s}}\nlog: {format: json}\n")
	cmd := programIn(t, fmt.Sprint("ulimit -v ", maxAddressSpace), "serve", "--listen", "tcp://127.0.0.1:0", "--config", config)
	log, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
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
