package lookup

import (
	"runtime"
	"sync"
	"testing"
	"unsafe"

	"github.com/hitline/hitline/coordinator"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/cpu"
)

// TestCountersAreExact counts in many goroutines, which return to one stripe again and again.
func TestCountersAreExact(t *testing.T) {
	const goroutines, each = 8, 50_000
	c := newCounters()
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			at := &c.stripes[0]
			for i := range each {
				if i%10 == 0 {
					at = &c.stripes[0]
				}
				at = c.count(at)
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, goroutines*each, c.lookups())
}

// TestQueriesHaveStripes checks that as many queries as there are processors write to as many
// stripes, and that nothing of one stripe or query is on a cache line of the next.
func TestQueriesHaveStripes(t *testing.T) {
	const line = unsafe.Sizeof(cpu.CacheLinePad{})
	var stripe counterStripe
	require.GreaterOrEqual(t, unsafe.Sizeof(stripe), unsafe.Offsetof(stripe.lookups)+8+line)
	var query Query
	require.GreaterOrEqual(t, unsafe.Offsetof(query.memory), line)
	require.GreaterOrEqual(t, unsafe.Sizeof(query), unsafe.Offsetof(query.runs)+unsafe.Sizeof(query.runs)+line)

	s, err := NewService(blocks16)
	require.NoError(t, err)
	stripes := map[*counterStripe]bool{}
	for range runtime.GOMAXPROCS(0) {
		q := s.memory.NewQuery()
		defer q.Release()
		stripes[q.stripe] = true
	}
	require.Len(t, stripes, runtime.GOMAXPROCS(0))
	for range 3 {
		_, err := s.Lookup(t.Context(), 16, coordinator.NewHashes(make([]byte, 32), 32))
		require.NoError(t, err)
	}
	require.EqualValues(t, 3, s.Stat().Lookups)
}
