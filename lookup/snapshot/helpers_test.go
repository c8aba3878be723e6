package snapshot

import (
	"context"
	"encoding/binary"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/internal/logtest"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/server"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, lookuptest.EngineLeaks...)
}

const hashLen = 32

var (
	ownPool   = coordinator.Pool{ModelName: "m", HashBlockSize: 16}
	otherPool = coordinator.Pool{VLLM: "0.33.0", HashBlockSize: 16, TPSize: 4}
)

// newServer returns a server that is not started, with pools of its own, named a, and any that are described.
func newServer(t testing.TB, own, a coordinator.Pool) *server.Server {
	t.Helper()
	serve := func(pool coordinator.Pool) (*lookup.Service, error) {
		return lookup.NewService(lookup.ServiceConfig{Pool: pool, Memory: index.Config{MaxBytes: 64 << 20}})
	}
	service, err := serve(own)
	require.NoError(t, err)
	named, err := serve(a)
	require.NoError(t, err)
	srv, err := server.New(service, server.Config{Pools: []server.ServedPool{{Name: "a", Service: named}}, AcceptPool: serve, MaxPools: 2})
	require.NoError(t, err)
	return srv
}

// pool returns the pool of a server by name.
func pool(t testing.TB, srv *server.Server, name string) *lookup.Service {
	t.Helper()
	for _, p := range srv.Pools() {
		if p.Name == name {
			return p.Service
		}
	}
	t.Fatalf("no pool %q", name)
	return nil
}

// chain returns the n keys of a chain.
func chain(number, n int) []byte {
	keys := make([]byte, n*hashLen)
	for i := range n {
		binary.LittleEndian.PutUint64(keys[i*hashLen:], uint64(number))
		binary.LittleEndian.PutUint64(keys[i*hashLen+8:], uint64(i))
		binary.BigEndian.PutUint64(keys[i*hashLen+24:], rand.New(rand.NewPCG(uint64(number), uint64(i))).Uint64())
	}
	return keys
}

// store stores keys on all ranks of a service.
func store(t testing.TB, s *lookup.Service, keys []byte) {
	t.Helper()
	for rank := range max(s.Pool().TPSize, 1) {
		require.NoError(t, s.Store(t.Context(), coordinator.GroupRank{TPRank: uint16(rank)}, coordinator.NewHashes(keys, hashLen)))
	}
}

// hitBlocks returns how many leading blocks of a chain are found, of a prompt that is a block longer.
func hitBlocks(t testing.TB, s *lookup.Service, keys []byte) int {
	t.Helper()
	hit, err := s.Lookup(t.Context(), int64(len(keys)/hashLen+1)*16, coordinator.NewHashes(keys, hashLen))
	require.NoError(t, err)
	return int(hit.Tokens / 16)
}

// newSaver returns a Saver with a log.
func newSaver(t testing.TB, srv Server, path string) (*Saver, *logtest.Buffer) {
	t.Helper()
	log := &logtest.Buffer{}
	s, err := New(srv, Config{Path: path, MaxAge: time.Hour, Version: "v1", Logger: slog.New(slog.NewJSONHandler(log, nil))})
	require.NoError(t, err)
	return s, log
}

// snapshotOf writes a snapshot of a server and returns its path.
func snapshotOf(t testing.TB, srv Server) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "index")
	s, log := newSaver(t, srv, path)
	s.save(context.Background(), true)
	s.unlock()
	require.Contains(t, log.String(), "snapshot written")
	return path
}

// load loads a snapshot into a server, and returns the log and the status.
func load(t testing.TB, srv Server, path string) (log string, st *Status) {
	t.Helper()
	s, buffer := newSaver(t, srv, path)
	defer s.unlock()
	require.NoError(t, s.Load(t.Context()))
	return buffer.String(), s.Status()
}
