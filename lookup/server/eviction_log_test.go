package server

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/internal/loglimit"
	"github.com/hitline/hitline/internal/logtest"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup"
)

// A memory index that is full and evicts is logged, once for each pool.
func TestLogsEvictions(t *testing.T) {
	log := new(logtest.Buffer)
	service := func() *lookup.Service {
		s, err := lookup.NewService(lookup.ServiceConfig{Pool: lookuptest.Blocks16, Memory: index.Config{MaxEntries: 100}})
		require.NoError(t, err)
		return s
	}
	store := func(s *lookup.Service, seed string, n int) {
		require.NoError(t, s.Store(context.Background(), coordinator.GroupRank{}, coordinator.NewHashes(lookuptest.Chain(seed, n, 32), 32)))
	}
	own, other := service(), service()
	server, err := New(own, Config{
		Listeners: []Listener{{Address: "tcp://127.0.0.1:0"}}, Loops: 1, Pools: []ServedPool{{Name: "other", Service: other}},
		Logger: slog.New(slog.NewTextHandler(log, nil)),
	})
	require.NoError(t, err)
	handler := &eventHandler{server: server}
	lines := func() (n int) { return strings.Count(log.String(), "the memory index is full and evicts blocks") }
	store(own, "a", 100)
	require.NoError(t, own.Evict(context.Background(), coordinator.GroupRank{}, coordinator.NewHashes(lookuptest.Chain("a", 10, 32), 32)))
	handler.OnTick()
	require.Zero(t, lines(), "it was asked to")

	store(own, "b", 100)
	handler.OnTick()
	require.Regexp(t, `level=WARN .* pool="" unused_for=0s entries=100 max_bytes=\d+ max_entries=100\n`, log.String())
	store(own, "c", 100)
	store(other, "a", 100)
	store(other, "b", 1)
	now := time.Now()
	server.events.logEvictions(now.Add(-loglimit.Interval))
	require.Equal(t, 1, lines(), "at most one in an interval")
	server.events.logEvictions(now.Add(time.Minute))
	server.events.logEvictions(now.Add(time.Hour))
	require.Equal(t, 2, lines())
	require.Regexp(t, `pool=other unused_for=1m1s `, log.String())
}
