package server

import (
	"sync/atomic"

	"golang.org/x/sys/cpu"

	"github.com/hitline/hitline/lookup/internal/histogram"
	"github.com/hitline/hitline/netproto"
)

// Upper bounds of the histograms' buckets: nanoseconds of a lookup, 1-2-5 from 5 µs to 5 s,
// and its hashes.
var (
	durationBounds = [...]int64{
		5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6, 2e6, 5e6, 1e7, 2e7, 5e7, 1e8, 2e8, 5e8, 1e9, 2e9, 5e9,
	}
	hashBounds = [...]int64{16, 64, 256, 1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20}
)

// loopMetrics are what one event loop counts: the histograms of the lookups that it answers, and
// counters. Each loop has its own, on its own cache lines, so that lookups on
// two loops write to no common line. Stat adds them up.
type loopMetrics struct {
	_             cpu.CacheLinePad
	durations     histogram.Counts
	hashes        histogram.Counts
	refused, busy atomic.Int64                   // see api.Stat
	afterFIN      atomic.Int64                   // likewise
	requests      [netproto.NumTags]atomic.Int64 // answered

	held atomic.Int64 // bytes that the loop's connections hold
	_    cpu.CacheLinePad
}

// observeDurations counts lookups that took nanos nanoseconds each.
func (m *loopMetrics) observeDurations(nanos, lookups int64) {
	m.durations.Observe(durationBounds[:], nanos, lookups)
}

// observeHashes counts a lookup of a number of hashes.
func (m *loopMetrics) observeHashes(hashes int) { m.hashes.Observe(hashBounds[:], int64(hashes), 1) }

// countAnswer counts a request whose reply is written. One that is written after the peer's FIN may have been given up.
func (m *loopMetrics) countAnswer(tag netproto.Tag, afterFIN bool) {
	m.requests[tag].Add(1)
	if afterFIN {
		m.afterFIN.Add(1)
	}
}
