package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Commands are clients of a server on a unix socket.
func TestServeIPC(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lookup.sock")
	file := configFile(t, "ipc_mode: 0660\nlog: {format: json}\n")
	s := awaitReady(t, func(ctx context.Context, log io.Writer) int {
		return run(ctx, []string{"serve", "--listen", "ipc://" + path, "--config", file}, nil, io.Discard, log)
	})
	address := s.address
	assert.Equal(t, "ipc://"+path, address)
	info, err := os.Lstat(path)
	require.NoError(t, err)
	assert.Equal(t, os.ModeSocket|0o660, info.Mode())
	for _, command := range []string{"ping", "stat", "reset --yes"} {
		got := hitline(t, "", append(strings.Fields(command), "--connect", address)...)
		assert.Equal(t, exitDone, got.code, got.stderr)
	}
	twice := hitline(t, "", "serve", "--listen", address)
	assert.Equal(t, exitFailed, twice.code)
	assert.Contains(t, twice.stderr, "hitline: cannot serve "+address+": "+path+" is in use by a running server")

	s.stop()
	<-s.done
	assert.NoFileExists(t, path)
	assert.Equal(t, exitNoConnection, hitline(t, "", "ping", "--connect", address).code)
}
