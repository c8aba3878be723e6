package snapshot

import (
	"bytes"
	"context"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/server"
)

// filled returns a server whose three pools hold chains, the longest in its own.
func filled(t testing.TB, blocks int) *server.Server {
	t.Helper()
	srv := newServer(t, ownPool, otherPool)
	store(t, pool(t, srv, ""), chain(1, blocks))
	store(t, pool(t, srv, ""), chain(2, 5))
	store(t, pool(t, srv, "a"), chain(3, 7))
	_, err := srv.DescribePool("d", coordinator.Pool{ModelName: "described", HashBlockSize: 16})
	require.NoError(t, err)
	store(t, pool(t, srv, "d"), chain(4, 9))
	return srv
}

func TestRestart(t *testing.T) {
	path := snapshotOf(t, filled(t, 5000))
	info, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, fs.FileMode(0o600), info.Mode())

	srv := newServer(t, ownPool, otherPool)
	log, st := load(t, srv, path)
	assert.Equal(t, int64(5021), st.LoadedEntries)
	assert.Empty(t, st.LoadError)
	assert.Contains(t, log, `"msg":"snapshot loaded"`)
	assert.Equal(t, 1, strings.Count(log, "\n"))
	assert.Equal(t, 5000, hitBlocks(t, pool(t, srv, ""), chain(1, 5000)))
	assert.Equal(t, 5, hitBlocks(t, pool(t, srv, ""), chain(2, 6)))
	assert.Equal(t, 7, hitBlocks(t, pool(t, srv, "a"), chain(3, 7)))
	assert.Equal(t, 9, hitBlocks(t, pool(t, srv, "d"), chain(4, 9)))
	assert.Zero(t, hitBlocks(t, pool(t, srv, ""), chain(3, 7)), "entries of another pool")

	got, err := Inspect(t.Context(), path)
	require.NoError(t, err)
	assert.Equal(t, "v1", got.Version)
	assert.Equal(t, info.Size(), got.Bytes)
	assert.Equal(t, int64(5021), got.Entries)
	var names []string
	for _, p := range got.Pools {
		names = append(names, p.Name)
	}
	assert.Equal(t, []string{"", "a", "d"}, names)
	assert.Equal(t, int64(7), got.Pools[1].Entries)
	assert.Equal(t, "m", got.Pools[0].Model)
}

// A pool that is described otherwise, or is one over max_pools, is left out with one line; the others are loaded.
func TestPoolsLeftOut(t *testing.T) {
	path := snapshotOf(t, filled(t, 10))
	full := newServer(t, ownPool, otherPool)
	for _, name := range []string{"e", "f"} {
		_, err := full.DescribePool(name, coordinator.Pool{ModelName: "described", HashBlockSize: 16})
		require.NoError(t, err)
	}
	for _, test := range []struct {
		srv     *server.Server
		own     int
		leftOut string
	}{
		{newServer(t, coordinator.Pool{ModelName: "n", HashBlockSize: 16}, otherPool), 0,
			`left out: pool "": it is described otherwise now: model_name is "n", in the snapshot "m"`},
		{full, 10, `left out: pool "d": server: there are max_pools described pools: 2`},
	} {
		log, st := load(t, test.srv, path)
		assert.Equal(t, test.leftOut, st.LoadError)
		assert.Equal(t, 2, strings.Count(log, "\n"), log)
		assert.Equal(t, test.own, hitBlocks(t, pool(t, test.srv, ""), chain(1, 10)))
		assert.Equal(t, 7, hitBlocks(t, pool(t, test.srv, "a"), chain(3, 7)))
	}
}

// oddServer panics where pools are asked for.
type oddServer struct {
	*server.Server
	odd bool
}

func (s *oddServer) Pools() []server.ServedPool {
	if s.odd {
		panic("odd pools")
	}
	return s.Server.Pools()
}

func (s *oddServer) DescribePool(string, coordinator.Pool) (server.ServedPool, error) {
	panic("odd pool")
}

// A panic fails a snapshot, or its load, and no more. The next one is written.
func TestPanic(t *testing.T) {
	path := snapshotOf(t, filled(t, 10))
	srv := &oddServer{newServer(t, ownPool, otherPool), false}
	var log bytes.Buffer
	s, err := New(srv, Config{Path: path, Interval: time.Second, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err)
	require.NoError(t, s.Load(t.Context()))
	assert.Contains(t, s.Status().LoadError, "a fault of hitline, please report it: odd pool, at ")
	assert.Zero(t, hitBlocks(t, pool(t, srv.Server, ""), chain(1, 10)))
	srv.odd = true
	assert.False(t, s.save(t.Context(), false))
	assert.Contains(t, s.Status().Error, "a fault of hitline, please report it: odd pools, at ")
	assert.Equal(t, int64(1), s.Status().Failed)
	srv.odd = false
	assert.True(t, s.save(t.Context(), false))
	assert.Equal(t, 2, strings.Count(log.String(), "a fault of hitline"), log.String())
	synctest.Test(t, func(t *testing.T) { // in the background, and at the end
		srv.odd = true
		s.Start()
		time.Sleep(3*retryAfter - time.Millisecond)
		s.Stop()
		s.SaveLast(t.Context())
		assert.Equal(t, int64(5), s.Status().Failed)
	})
}

// What is too old, or was written by a clock that is ahead, is refused.
func TestAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := snapshotOf(t, filled(t, 10))
		load := func(maxAge time.Duration, now time.Time) error {
			l := &loader{srv: newServer(t, ownPool, otherPool), maxAge: maxAge, now: now}
			_, err := l.load(t.Context(), path)
			return err
		}
		now := time.Now()
		assert.NoError(t, load(time.Minute, now))
		assert.NoError(t, load(time.Minute, now.Add(time.Minute)))
		assert.ErrorContains(t, load(time.Minute, now.Add(time.Minute+time.Second)), "it is 1m1s old, and max_age is 1m0s")
		assert.NoError(t, load(0, now.Add(100*24*time.Hour)))
		assert.NoError(t, load(time.Minute, now.Add(-time.Minute)))
		assert.ErrorContains(t, load(time.Minute, now.Add(-time.Minute-time.Second)), "it was written 1m1s in the future")
	})
}

// Snapshots are written each interval until Stop, and a last one.
func TestInterval(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(dir, "index")
		s, _ := newSaver(t, filled(t, 10), path)
		s.cfg.Interval = time.Minute
		started := time.Now()
		s.Start()
		time.Sleep(time.Minute - 1)
		synctest.Wait()
		assert.NoFileExists(t, path)
		for n := range 3 {
			time.Sleep(time.Second)
			synctest.Wait()
			assert.WithinDuration(t, started.Add(time.Duration(n+1)*time.Minute), s.Status().Written, time.Second)
			time.Sleep(59 * time.Second)
		}
		s.Stop()
		written := s.Status().Written
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.Equal(t, written, s.Status().Written)
		s.SaveLast(t.Context())
		assert.Equal(t, time.Now(), s.Status().Written)
	})
}

// A reset is in the file soon after it.
func TestResetIsWritten(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		srv := filled(t, 10)
		s, _ := newSaver(t, srv, filepath.Join(dir, "index"))
		s.save(t.Context(), false)
		s.cfg.Interval = 24 * time.Hour
		s.Start()
		for _, reset := range []func(*lookup.Service) error{
			func(p *lookup.Service) error {
				return p.ResetRank(t.Context(), coordinator.GroupRank{Group: coordinator.AnyRank})
			},
			func(p *lookup.Service) error { return p.Reset(t.Context()) },
		} {
			time.Sleep(time.Hour)
			synctest.Wait()
			before := s.Status().Written
			require.NoError(t, reset(pool(t, srv, "a")))
			time.Sleep(checkEvery)
			synctest.Wait()
			assert.Equal(t, time.Now(), s.Status().Written)
			assert.True(t, before.Before(s.Status().Written))
		}
		s.Stop()
	})
}

// If snapshots are written at the end alone, one that was loaded is removed, and one that was refused is not.
func TestLoadedIsRemoved(t *testing.T) {
	path := snapshotOf(t, filled(t, 10))
	refused := filepath.Join(t.TempDir(), "index")
	require.NoError(t, os.WriteFile(refused, []byte("no snapshot"), 0o600))
	for _, test := range []struct {
		path     string
		interval time.Duration
		removed  bool
	}{{path, time.Hour, false}, {refused, 0, false}, {path, 0, true}} {
		s, _ := newSaver(t, newServer(t, ownPool, otherPool), test.path)
		s.cfg.Interval = test.interval
		require.NoError(t, s.Load(t.Context()))
		assert.FileExists(t, test.path, "the server has not started")
		s.Start()
		s.Stop()
		_, err := os.Stat(test.path)
		assert.Equal(t, test.removed, err != nil)
	}
}

// A snapshot that cannot be written is counted, and logged once until one is written again, and at the end.
func TestFailures(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "folder")
	require.NoError(t, os.Mkdir(folder, 0o700))
	s, log := newSaver(t, filled(t, 10), filepath.Join(folder, "index"))
	require.NoError(t, os.RemoveAll(folder))
	for range 3 {
		s.save(context.Background(), false)
	}
	assert.Equal(t, int64(3), s.Status().Failed)
	assert.Equal(t, "open: no such file or directory", s.Status().Error)
	assert.Equal(t, 1, strings.Count(log.String(), "\n"), log.String())

	require.NoError(t, os.Mkdir(folder, 0o700))
	s.save(context.Background(), false)
	assert.Empty(t, s.Status().Error)
	assert.Equal(t, int64(31), s.Status().Entries)
	require.NoError(t, os.RemoveAll(folder))
	s.save(context.Background(), false)
	assert.Equal(t, int64(4), s.Status().Failed)
	assert.Equal(t, 3, strings.Count(log.String(), "\n"), log.String())
	s.save(context.Background(), true)
	assert.Equal(t, 4, strings.Count(log.String(), "\n"), "the last one is told of in any case")
}

// waiting is a server that tells its pools once it may.
type waiting struct {
	*server.Server
	may chan struct{}
}

func (w waiting) Pools() []server.ServedPool {
	<-w.may
	return w.Server.Pools()
}

// The end of the server waits for the last snapshot only as long as it is told to. A file system that hangs
// cannot keep it.
func TestLastIsBounded(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		srv := waiting{filled(t, 10), make(chan struct{})}
		s, log := newSaver(t, srv, filepath.Join(dir, "index"))
		s.Start()
		s.Stop()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		started := time.Now()
		s.SaveLast(ctx)
		assert.Equal(t, time.Minute, time.Since(started))
		assert.Contains(t, log.String(), "the last snapshot was not written in time")
		close(srv.may)
		synctest.Wait()
		assert.NoFileExists(t, filepath.Join(dir, "index"))
	})
}

// What ends with the server is no failure.
func TestAbandonedIsNoFailure(t *testing.T) {
	s, log := newSaver(t, filled(t, 10), filepath.Join(t.TempDir(), "index"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.save(ctx, true)
	assert.Zero(t, s.Status().Failed)
	assert.Empty(t, log.String())
	assert.ErrorIs(t, s.Load(ctx), context.Canceled)
}

// A path through a folder that is not there means the same to all that is done with it.
func TestPathIsCleaned(t *testing.T) {
	dir := t.TempDir()
	s, log := newSaver(t, filled(t, 10), dir+"/no/../index")
	s.save(t.Context(), false)
	assert.Contains(t, log.String(), "snapshot written")
	_, st := load(t, newServer(t, ownPool, otherPool), dir+"/no/../index")
	assert.Positive(t, st.LoadedEntries)
}
