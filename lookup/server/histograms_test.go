package server

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/internal/histogram"
)

// observations returns the buckets of a histogram that are not empty, by bound.
func observations(h api.Histogram) map[float64]uint64 {
	got := map[float64]uint64{}
	for i, n := range h.Counts {
		if n > 0 && i < len(h.Bounds) {
			got[h.Bounds[i]] = n
		} else if n > 0 {
			got[-1] = n
		}
	}
	return got
}

// What a lookup took is counted from its own first byte, in whatever turn that was.
func TestLookupDurations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := unstarted(t)
		ses := openSession(server, new(replies))
		feed := func(p []byte) {
			t.Helper()
			require.NoError(t, serveTurn(ses, p))
		}
		begun := func(within float64, lookups uint64, sum time.Duration) {
			t.Helper()
			h := server.LookupDurations()
			require.Equal(t, map[float64]uint64{within: lookups}, observations(h))
			require.InDelta(t, sum.Seconds(), h.Sum, 1e-12)
			*ses.conn.loop.metrics = loopMetrics{}
		}
		short, long := lookupOf("", lookuptest.Chain("a", 4, 32)), lookupOf("", lookuptest.Chain("a", 100, 32))

		feed(slices.Concat(short, short, short)) // the clock stands still
		begun(5e-6, 3, 0)

		feed(long[:10])
		time.Sleep(30 * time.Millisecond)
		feed(long[10:100])
		time.Sleep(3 * time.Millisecond)
		feed(long[100:])
		begun(0.05, 1, 33*time.Millisecond)

		feed(long[:100]) // the first of a turn began earlier, the others with it
		time.Sleep(time.Second)
		feed(slices.Concat(long[100:], short, short, long[:50]))
		h := server.LookupDurations()
		require.Equal(t, map[float64]uint64{1: 1, 5e-6: 2}, observations(h))
		require.InDelta(t, 1, h.Sum, 1e-12)
		*ses.conn.loop.metrics = loopMetrics{}
		time.Sleep(7 * time.Second)
		feed(long[50:])
		begun(-1, 1, 7*time.Second)

		ping := lookuptest.Encode([]byte("ping"))
		feed(ping[:3]) // what began earlier was no lookup
		time.Sleep(time.Second)
		feed(slices.Concat(ping[3:], short))
		begun(5e-6, 1, 0)

		ses.jobs.barrier = new(job) // what comes next waits
		ses.conn.unanswered.Store(1)
		feed(slices.Concat(short, short))
		require.Empty(t, observations(server.LookupDurations()))
		time.Sleep(80 * time.Millisecond)
		feed(short)
		time.Sleep(10 * time.Millisecond)
		ses.jobs.barrier = nil
		ses.conn.unanswered.Store(0)
		require.NoError(t, wake(ses))
		begun(0.1, 3, 270*time.Millisecond) // they were kept in one chunk, which has the time of its first bytes

		feed(lookuptest.Encode([]byte("lookup"), []byte{17})) // refused: not counted
		require.Empty(t, observations(server.LookupDurations()))
	})
}

func TestMetersOfLoops(t *testing.T) {
	for name, cfg := range map[string]lookup.ServiceConfig{"memory": blocks16, "remote": {Pool: blocks16.Pool, Backend: &lookuptest.KeyStore{}, Remote: patient}} {
		server := startServer(t, cfg, Limits{})
		for range 4 { // over 2 loops
			c := dialTest(t, server)
			for _, n := range []int{1, 20, 100} {
				_, err := c.Lookup(context.Background(), int64(16*n), coordinator.NewHashes(lookuptest.Chain("a", n, 32), 32))
				require.NoError(t, err)
			}
		}
		lookuptest.Eventually(t, name, func() bool {
			var all uint64
			for _, n := range server.LookupDurations().Counts {
				all += n
			}
			return all == 12
		})
		require.Equal(t, map[float64]uint64{16: 4, 64: 4, 256: 4}, observations(server.LookupHashes()), name)
		require.Equal(t, float64(4*121), server.LookupHashes().Sum, name)
		require.Positive(t, server.LookupDurations().Sum, name)
		require.Len(t, server.loops.all, 2, name)
		for _, l := range server.loops.all {
			require.Positive(t, histogram.Merge(hashBounds[:], 1, &l.metrics.hashes).Sum, name)
		}
	}
}

// A server is ready when the program says that it is, too.
func TestReadyOfTheProgram(t *testing.T) {
	service, err := lookup.NewService(blocks16)
	require.NoError(t, err)
	errLoading := errors.New("loading what a peer holds")
	loading := errLoading
	server, err := New(service, Config{Listeners: []Listener{{Address: "tcp://127.0.0.1:0"}}, Ready: func() error { return loading }})
	require.NoError(t, err)
	startTest(t, server)
	require.EqualError(t, server.Ready(), "not ready: loading what a peer holds")
	require.ErrorIs(t, server.Ready(), errLoading)
	loading = nil
	require.NoError(t, server.Ready())
}

func TestReady(t *testing.T) {
	server := unstarted(t)
	require.EqualError(t, server.Ready(), "not ready: not listening yet")
	server.SetPreparing("reading a file")
	require.EqualError(t, server.Ready(), "not ready: reading a file")

	server = startServer(t, blocks16, Limits{})
	require.NoError(t, server.Ready())
	p := lookuptest.DialPeer(t, server.Addrs()[0])
	p.Send(t, lookuptest.Encode([]byte("ping"), nil), lookuptest.Encode([]byte("ping"))[:3])
	require.Equal(t, [][]byte{{1}, {}}, p.Next(t))
	stopped := make(chan error, 1)
	go func() { stopped <- server.Shutdown(context.Background()) }()
	lookuptest.Eventually(t, "draining", func() bool { return server.Ready() != nil })
	require.EqualError(t, server.Ready(), "not ready: draining")
	require.ErrorIs(t, server.Ready(), ErrNotReady)
	p.Send(t, lookuptest.Encode([]byte("ping"))[3:])
	require.NoError(t, <-stopped)
	require.EqualError(t, server.Ready(), "not ready: stopped")
}
