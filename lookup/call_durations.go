package lookup

import (
	"time"

	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/internal/histogram"
	"github.com/hitline/hitline/lookup/internal/monotime"
)

// callKind is the method of a backend that is called.
type callKind int

const (
	callExists callKind = iota
	callStore
	callEvict
	callReset
	numCalls
)

// callNames are the keys of SharedBackend.CallDurations.
var callNames = [numCalls]string{callExists: "exists", callStore: "store", callEvict: "evict", callReset: "reset"}

// callBounds are the upper bounds of their buckets in nanoseconds, 1-2-5 from 20 µs to 20 s: no network store
// answers sooner, and the default of WriteTimeout is half of the last.
var callBounds = [...]int64{
	2e4, 5e4, 1e5, 2e5, 5e5, 1e6, 2e6, 5e6, 1e7, 2e7, 5e7, 1e8, 2e8, 5e8, 1e9, 2e9, 5e9, 1e10, 2e10,
}

// callDurations are histograms of the durations of a backend's calls.
type callDurations [numCalls]histogram.Counts

// observe counts a call that began at a time in monotime.
func (d *callDurations) observe(kind callKind, began int64) {
	d[kind].Observe(callBounds[:], monotime.Now()-began, 1)
}

// all returns the histograms in seconds.
func (d *callDurations) all() map[string]api.Histogram {
	all := make(map[string]api.Histogram, numCalls)
	for kind := range d {
		all[callNames[kind]] = histogram.Merge(callBounds[:], float64(time.Second), &d[kind])
	}
	return all
}
