package server

import (
	"runtime"

	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/server/internal/workers"
)

// Which workers a server has.

// workerKind is what workers do.
type workerKind int

const (
	computing workerKind = iota // jobs that call no store: half of the processors is left to the event loops
	reading                     // jobs that read a store
	writing                     // jobs that change one: lookups do not wait for slow resets or stores
	numWorkerKinds
)

// workerPools are the workers of a server, by kind.
type workerPools [numWorkerKinds]*workers.Pool

// startWorkers starts the workers for a backend, which is nil over the memory index.
func startWorkers(backend *lookup.SharedBackend) (w workerPools) {
	w[computing] = workers.New(numComputing())
	if backend != nil {
		w[reading] = workers.New(backend.Config().Workers)
		w[writing] = workers.New(backend.Config().WriteWorkers)
	}
	return w
}

// numComputing returns how many workers compute.
func numComputing() int { return max(2, runtime.GOMAXPROCS(0)/2) }

// stop waits until all jobs have ended.
func (w *workerPools) stop() {
	for _, p := range w {
		if p != nil {
			p.Stop()
		}
	}
}
