package main

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/server"
	"github.com/hitline/hitline/lookup/snapshot"
)

// keeping returns the configuration of a server that keeps its index in a file.
func keeping(path string) string {
	return "pool: {hash_block_size: 512}\nbackend: {memory: {snapshot: {path: " + path + ", interval: 0}}}\n"
}

// The command prints what serve has written.
func TestSnapshotCommand(t *testing.T) {
	path := filepath.Join(t.TempDir(), "index")
	hashes := fmt.Sprintf("%064d\n%064d\n%064d\n", 1, 2, 3)
	t.Run("serve", func(t *testing.T) {
		s := startServe(t, keeping(path))
		require.Equal(t, exitDone, hitline(t, hashes, "store", "--hashes-file", "-", "--connect", s.address).code)
	})
	got := hitline(t, "", "snapshot", "verify", path)
	assert.Regexp(t, `^ok: 3 entries in 1 pools, \d+ bytes\n$`, got.stdout)
	assert.Equal(t, exitDone, got.code, got.stderr)
	got = hitline(t, "", "snapshot", "info", path)
	assert.Regexp(t, `(?s)^created +20\S+Z\nage +\S+\nversion +\S+\nbytes +\d+\nentries +3\n\npool +model +entries +described +digest\n"" +"" +3 +false +"[0-9a-f]{8}"\n$`, got.stdout)
	got = hitline(t, "", "snapshot", "info", path, "--json")
	var info snapshot.Info
	require.NoError(t, json.Unmarshal([]byte(got.stdout), &info))
	assert.Equal(t, int64(3), info.Pools[0].Entries)

	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, whole[:len(whole)-1], 0o600))
	for _, action := range []string{"verify", "info"} {
		got = hitline(t, "", "snapshot", action, path)
		assert.Regexp(t, `^hitline: `+path+`: after \d+ bytes, in part \d: it ends too early\n$`, got.stderr)
		assert.Empty(t, got.stdout)
		assert.Equal(t, exitFailed, got.code)
	}
	assert.Equal(t, exitFailed, hitline(t, "", "snapshot", "verify", path+"2").code)
	for _, args := range [][]string{{}, {"verify"}, {"show", path}, {"info", path, path}} {
		got = hitline(t, "", append([]string{"snapshot"}, args...)...)
		assert.Equal(t, result{exitUsage, "", "hitline: give an action and a file: info FILE, or verify FILE\nhint: hitline snapshot --help\n"}, got)
	}
}

// A folder that is missing is an error of the configuration, and a warning of --check.
func TestSnapshotFolderIsMissing(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "no")
	config := configFile(t, keeping(filepath.Join(folder, "index")))
	want := config + ":2:37: backend.memory.snapshot.path: snapshot: its folder must be there: stat " + folder + ": no such file or directory\n"
	got := hitline(t, "", "serve", "--config", config)
	assert.Equal(t, result{exitUsage, "", "hitline: " + want}, got)
	got = hitline(t, "", "serve", "--config", config, "--check")
	assert.Equal(t, exitDone, got.code)
	assert.Equal(t, "hitline: warning: "+want, got.stderr)
	// It is of the memory backend alone.
	redis := configFile(t, "pool: {model_name: m}\nbackend: {redis: {url: redis://127.0.0.1:1}}\n")
	t.Setenv("HITLINE_BACKEND_MEMORY_SNAPSHOT_PATH", filepath.Join(folder, "index"))
	got = hitline(t, "", "serve", "--config", redis, "--backend", "redis", "--check")
	assert.Equal(t, exitDone, got.code, got.stderr)
}

// A path that is that of the configuration does not cost the configuration.
func TestSnapshotIsNotTheConfiguration(t *testing.T) {
	config := configFile(t, "")
	text := keeping(filepath.Join(filepath.Dir(config), "no", "..", filepath.Base(config)))
	require.NoError(t, os.WriteFile(config, []byte(text), 0o600))
	got := hitline(t, "", "serve", "--config", config)
	assert.Equal(t, result{exitUsage, "", "hitline: " + config + ":2:37: backend.memory.snapshot.path: it would replace this file\n"}, got)
	kept, err := os.ReadFile(config)
	require.NoError(t, err)
	assert.Equal(t, text, string(kept))
}

// Until the snapshot is loaded the server says that it is not ready for that reason.
func TestNotReadyWhileLoading(t *testing.T) {
	service, err := lookup.NewService(lookup.ServiceConfig{Memory: index.Config{MaxBytes: index.MinMaxBytes}})
	require.NoError(t, err)
	srv, err := server.New(service, server.Config{})
	require.NoError(t, err)
	r := &running{cfg: loadConfig(t, "{}\n"), logger: slog.New(slog.DiscardHandler)}
	saver, err := r.newSaver(srv)
	require.NoError(t, err)
	assert.Nil(t, saver, "off by default")
	assert.EqualError(t, srv.Ready(), "not ready: not listening yet")
	r.cfg = loadConfig(t, keeping(filepath.Join(t.TempDir(), "index")))
	saver, err = r.newSaver(srv)
	require.NoError(t, err)
	assert.NotNil(t, saver)
	assert.EqualError(t, srv.Ready(), "not ready: loading the snapshot")
}

// signalling is a server that has the test get a signal while a snapshot is loaded into it.
type signalling struct {
	signals chan os.Signal
	pools   []server.ServedPool
}

func (s *signalling) Pools() []server.ServedPool {
	s.signals <- syscall.SIGTERM
	return s.pools
}

func (s *signalling) DescribePool(string, coordinator.Pool) (server.ServedPool, error) {
	panic("not called")
}

// hangingServer is a server that has the test get two signals while a snapshot is loaded into it, and does not
// answer until released.
type hangingServer struct {
	signalling
	released chan struct{}
}

func (s *hangingServer) Pools() []server.ServedPool {
	defer func() { <-s.released }()
	s.signalling.Pools()
	time.Sleep(signalGrace)
	return s.signalling.Pools()
}

// A signal ends the load of a snapshot. A second one does not wait for a load that hangs.
func TestSignalWhileLoading(t *testing.T) {
	service, err := lookup.NewService(lookup.ServiceConfig{Memory: index.Config{MaxBytes: index.MinMaxBytes}})
	require.NoError(t, err)
	srv, err := server.New(service, server.Config{})
	require.NoError(t, err)
	cfg := snapshot.Config{Path: filepath.Join(t.TempDir(), "index"), Logger: slog.New(slog.DiscardHandler)}
	saver, err := snapshot.New(srv, cfg)
	require.NoError(t, err)
	saver.Start()
	saver.Stop()
	saver.SaveLast(t.Context())
	require.FileExists(t, cfg.Path)

	stopped, err := untilSignal(t.Context(), saver.Load, nil, cfg.Logger)
	assert.NoError(t, err)
	assert.False(t, stopped)

	signals := make(chan os.Signal)
	interrupted, err := snapshot.New(&signalling{signals, srv.Pools()}, cfg)
	require.NoError(t, err)
	stopped, err = untilSignal(t.Context(), interrupted.Load, signals, cfg.Logger)
	assert.NoError(t, err)
	assert.True(t, stopped)

	s := &hangingServer{signalling{make(chan os.Signal), srv.Pools()}, make(chan struct{})}
	defer close(s.released)
	hanging, err := snapshot.New(s, cfg)
	require.NoError(t, err)
	_, err = untilSignal(t.Context(), hanging.Load, s.signals, cfg.Logger)
	assert.ErrorIs(t, err, errSecondSignal)
}
