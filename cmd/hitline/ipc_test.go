package main

import (
	"bufio"
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
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	logReader, logWriter := io.Pipe()
	code := make(chan int, 1)
	go func() {
		args := []string{"serve", "--listen", "ipc://" + path, "--config", configFile(t, "ipc_mode: 0660\nlog: {format: json}\n")}
		code <- run(ctx, args, nil, io.Discard, logWriter)
		logWriter.Close()
	}()
	log := bufio.NewScanner(logReader)
	address := readyLine(t, log)
	go func() { _, _ = io.Copy(io.Discard, logReader) }()
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

	stop()
	assert.Equal(t, exitDone, <-code)
	assert.NoFileExists(t, path)
	assert.Equal(t, exitNoConnection, hitline(t, "", "ping", "--connect", address).code)
}
