package server

import (
	"runtime"
	"sync"

	"github.com/hitline/hitline/lookup"
)

// workerPool is a queue of jobs and the workers that run them. What a connection may queue is bounded
// by what it may have in flight, and by the admission.
//
// Connections are served round-robin, one job each, so a connection that pipelines a
// thousand lookups delays another by one of them. For the same reason no connection may
// have all workers.
//
// Small and large jobs have queues of their own, which workers take from alternately. Some
// workers are kept for small jobs, so that these do not wait for large ones to end.
type workerPool struct {
	maxRunning [numSizes]int // workers that serve jobs of the size at a time
	maxPerConn [numSizes]int // workers that serve one connection at a time, of them with large jobs

	mu       sync.Mutex
	ready    sync.Cond              // a connection is runnable, or the pool is closed
	conns    [numSizes][]*connQueue // the runnable connections, each once, in round-robin order
	queued   int                    // jobs in all queues
	running  [numSizes]int          // jobs that workers have taken, by size
	lastSize jobSize                // of the job that a worker took last
	closed   bool
	workers  sync.WaitGroup
}

// jobSize is how much work a job is.
type jobSize int

const (
	smallSize jobSize = iota
	largeSize
	numSizes
)

// task is what a worker runs: a job.
type task interface {
	size() jobSize
	run()
}

// connQueue holds the jobs of one connection that wait for a worker of one pool.
// workerPool.mu guards it.
type connQueue struct {
	jobs     [numSizes][]task
	running  [numSizes]int  // jobs that workers have taken
	runnable [numSizes]bool // listed in workerPool.conns
}

// newWorkerPool starts the workers; stop ends them. An eighth of the workers, at least one of several,
// are for small jobs only.
func newWorkerPool(workers int) *workerPool {
	kept := workers / 8
	if kept == 0 && workers > 1 {
		kept = 1
	}
	perConn := workers - workers/8
	p := &workerPool{
		maxRunning: [numSizes]int{workers, workers - kept},
		maxPerConn: [numSizes]int{perConn, max(1, perConn-kept)},
	}
	p.ready.L = &p.mu
	for range workers {
		p.workers.Go(p.runJobs)
	}
	return p
}

// submit queues a job.
func (p *workerPool) submit(q *connQueue, j task) {
	size := j.size()
	p.mu.Lock()
	defer p.mu.Unlock()
	q.jobs[size] = append(q.jobs[size], j)
	p.queued++
	p.markRunnable(q)
}

// markRunnable lists a connection for each size of which a worker may take its next job.
// mu is held.
func (p *workerPool) markRunnable(q *connQueue) {
	for size := range numSizes {
		if q.runnable[size] || !p.mayRun(q, size) {
			continue
		}
		q.runnable[size] = true
		p.conns[size] = append(p.conns[size], q)
		p.ready.Signal()
	}
}

// mayRun reports whether a connection has a job of the size and few enough workers.
func (p *workerPool) mayRun(q *connQueue, size jobSize) bool {
	return len(q.jobs[size]) > 0 &&
		q.running[smallSize]+q.running[largeSize] < p.maxPerConn[smallSize] &&
		(size == smallSize || q.running[largeSize] < p.maxPerConn[largeSize])
}

// runJobs runs jobs until the pool is closed and its queue is empty.
func (p *workerPool) runJobs() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		q, size := p.nextConn()
		if q == nil {
			if p.closed && p.queued == 0 {
				return
			}
			p.ready.Wait()
			continue
		}
		j := p.dequeue(q, size)
		p.mu.Unlock()
		j.run()
		runtime.Gosched() // an event loop may wait for the processor
		p.mu.Lock()
		q.running[size]--
		p.running[size]--
		p.markRunnable(q)
		if len(p.conns[largeSize]) > 0 {
			p.ready.Signal() // there may have been too many large jobs for it
		}
	}
}

// nextConn removes the connection to serve next from its list, and returns the size of the
// job to take from it. It returns nil if there is none. mu is held.
func (p *workerPool) nextConn() (*connQueue, jobSize) {
	for _, size := range [...]jobSize{largeSize - p.lastSize, p.lastSize} { // alternately
		for len(p.conns[size]) > 0 && p.running[size] < p.maxRunning[size] {
			q := p.conns[size][0]
			p.conns[size][0] = nil
			p.conns[size] = p.conns[size][1:]
			q.runnable[size] = false
			if p.mayRun(q, size) { // otherwise it is listed again when a worker is done with it
				return q, size
			}
		}
	}
	return nil, 0
}

// dequeue removes the next job of a size from the queue. Its connection goes to the end
// of the list. mu is held.
func (p *workerPool) dequeue(q *connQueue, size jobSize) task {
	j := q.jobs[size][0]
	q.jobs[size][0] = nil
	q.jobs[size] = q.jobs[size][1:]
	q.running[size]++
	p.running[size]++
	p.lastSize = size
	if p.queued--; p.closed && p.queued == 0 {
		p.ready.Broadcast() // no worker need wait any longer
	}
	p.markRunnable(q)
	return j
}

// stop waits until the queue is empty and the workers have ended. submit must not be called
// any more.
func (p *workerPool) stop() {
	p.mu.Lock()
	p.closed = true
	p.ready.Broadcast()
	p.mu.Unlock()
	p.workers.Wait()
}

// workerKind is what workers do.
type workerKind int

const (
	computing workerKind = iota // jobs that call no store: half of the processors is left to the event loops
	reading                     // jobs that read a store
	writing                     // jobs that change one: lookups do not wait for slow resets or stores
	numWorkerKinds
)

// workerPools are the workers of a server, by kind.
type workerPools [numWorkerKinds]*workerPool

// startWorkers starts the workers for a backend, which is nil over the memory index.
func startWorkers(backend *lookup.SharedBackend) (w workerPools) {
	w[computing] = newWorkerPool(max(2, runtime.GOMAXPROCS(0)/2))
	if backend != nil {
		w[reading] = newWorkerPool(backend.Config().Workers)
		w[writing] = newWorkerPool(backend.Config().WriteWorkers)
	}
	return w
}

// stop waits until all jobs have ended.
func (w *workerPools) stop() {
	for _, p := range w {
		if p != nil {
			p.stop()
		}
	}
}
