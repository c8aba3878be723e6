package main

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// owned is a serve on a socket in a folder of its own, both tied to its standard input.
type owned struct {
	folder string
	stdin  io.WriteCloser
	log    *bufio.Scanner
	code   chan int
}

func startOwned(t *testing.T) *owned {
	t.Helper()
	o := &owned{folder: filepath.Join(t.TempDir(), "own"), code: make(chan int, 1)}
	require.NoError(t, os.Mkdir(o.folder, 0o700))
	stdin, write := io.Pipe()
	o.stdin = write
	logReader, logWriter := io.Pipe()
	o.log = bufio.NewScanner(logReader)
	args := []string{"serve", "--listen", "ipc://" + o.folder + "/lookup.sock", "--exit-on-stdin-eof", "--remove-dir", o.folder,
		"--config", configFile(t, "log: {format: json}\n")}
	go func() {
		o.code <- run(context.Background(), args, stdin, io.Discard, logWriter)
		logWriter.Close()
	}()
	assert.Equal(t, "ipc://"+o.folder+"/lookup.sock", readyLine(t, o.log))
	return o
}

func TestEndOfStandardInput(t *testing.T) {
	o := startOwned(t)
	_, err := io.WriteString(o.stdin, "what it says does not count\n")
	require.NoError(t, err)
	assert.Equal(t, exitDone, hitline(t, "", "ping", "--connect", "ipc://"+o.folder+"/lookup.sock").code)
	require.NoError(t, o.stdin.Close())
	awaitLog(t, o.log, "stopping")
	assert.Contains(t, o.log.Text(), `"why":"standard input ended"`)
	awaitLog(t, o.log, "stopped")
	assert.False(t, o.log.Scan(), o.log.Text())
	assert.Equal(t, exitDone, <-o.code)
	assert.NoDirExists(t, o.folder)
}

// A signal after it is no second signal, which would leave the folder behind.
func TestSignalAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errOwnerEnded)
		signals := make(chan os.Signal, 1)
		srv := &fakeServer{shutdown: func(context.Context) error {
			signals <- syscall.SIGTERM
			time.Sleep(time.Second)
			return nil
		}}
		assert.NoError(t, wait(ctx, srv, signals, func() stopTimes { return stopTimes{timeout: time.Minute} }, slog.New(slog.DiscardHandler)))
	})
}

func TestRemoveDirKeepsFiles(t *testing.T) {
	o := startOwned(t)
	file := filepath.Join(o.folder, "somebody's")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.NoError(t, o.stdin.Close())
	awaitLog(t, o.log, "stopped")
	assert.False(t, o.log.Scan(), o.log.Text())
	assert.Equal(t, exitDone, <-o.code)
	assert.FileExists(t, file)
	assert.NoFileExists(t, filepath.Join(o.folder, "lookup.sock"))
}

// While the owner lives the folder stays: somebody else could take its name.
func TestRemoveDirWhileTheOwnerLives(t *testing.T) {
	folder := t.TempDir()
	stdin, owner := io.Pipe()
	defer owner.Close()
	args := []string{"serve", "--listen", "nonsense", "--exit-on-stdin-eof", "--remove-dir", folder}
	assert.Equal(t, exitUsage, run(t.Context(), args, stdin, io.Discard, io.Discard))
	assert.DirExists(t, folder)
}

// A path that is no folder, or a link to one, is left alone.
func TestRemoveDirOfFile(t *testing.T) {
	folder := t.TempDir()
	file, link := filepath.Join(folder, "file"), filepath.Join(folder, "link")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.NoError(t, os.Symlink(t.TempDir(), link))
	for _, path := range []string{file, link, filepath.Join(folder, "none")} {
		hitline(t, "", "serve", "--listen", "tcp://127.0.0.1:0", "--exit-on-stdin-eof", "--remove-dir", path)
	}
	assert.FileExists(t, file)
	_, err := os.Lstat(link)
	assert.NoError(t, err)
}
