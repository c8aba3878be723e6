package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// On a full disk the snapshot before stays, the server goes on, and writes again once there is room.
func TestSnapshotOnFullDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "index")
	p := startKept(t, strings.Replace(keeping(path), "interval: 0", "interval: 1s", 1))
	p.store(t, longChain(1, 1000))
	limit := func(bytes uint64) { // of a file that the program writes, as a full disk is
		require.NoError(t, unix.Prlimit(p.cmd.Process.Pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: bytes, Max: unix.RLIM_INFINITY}, nil))
	}
	for !strings.Contains(p.log.Text(), `"entries":1000,`) {
		awaitLog(t, p.log, "snapshot written")
	}
	limit(8 << 10)
	const failure = "the snapshot cannot be written; the one before stays"
	awaitLog(t, p.log, failure)
	assert.Contains(t, p.log.Text(), "file too large")
	before, err := os.ReadFile(path)
	require.NoError(t, err)
	p.store(t, longChain(2, 1000))
	assert.Equal(t, 1000, p.depth(t, longChain(1, 1000)))
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.True(t, bytes.Equal(before, after))
	limit(unix.RLIM_INFINITY)
	awaitLog(t, p.log, "snapshot written")
	assert.Contains(t, p.log.Text(), `"entries":2000,`)
	p.stop(t, syscall.SIGTERM)
	list, err := filepath.Glob(path + "*")
	require.NoError(t, err)
	assert.Equal(t, []string{path, path + ".hitline-lock"}, list)
}
