package server

import (
	"context"
	"sync"

	"github.com/hitline/hitline/lookup"
)

// workerPool is a bounded queue of remote requests and the workers that run them.
//
// Connections are served round-robin, one request each, so a connection that pipelines a
// thousand lookups delays another by one of them. For the same reason no connection may
// have all workers or fill the queue.
//
// Small and large requests have queues of their own, which workers take from alternately. Some
// workers and some of the queue are kept for small requests, so that these do not wait for
// large ones to end.
type workerPool struct {
	maxQueued  [numSizes]int // requests in all queues, of them large ones
	maxRunning [numSizes]int // workers that serve requests of the size at a time
	maxPerConn [numSizes]int // workers that serve one connection at a time, of them with large requests

	mu       sync.Mutex
	ready    sync.Cond              // a connection is runnable, or the pool is closed
	conns    [numSizes][]*connQueue // the runnable connections, each once, in round-robin order
	queued   [numSizes]int          // requests in all queues, by size
	running  [numSizes]int          // requests that workers have taken, by size
	lastSize requestSize            // of the request that a worker took last
	closed   bool
	workers  sync.WaitGroup
}

// requestSize is whether a request is small, see remoteRequest.isSmall.
type requestSize int

const (
	smallSize requestSize = iota
	largeSize
	numSizes
)

// connQueue holds the requests of one connection that wait for a worker of one pool.
// workerPool.mu guards it.
type connQueue struct {
	requests [numSizes][]*remoteRequest
	running  [numSizes]int  // requests that workers have taken
	runnable [numSizes]bool // listed in workerPool.conns
}

// newWorkerPool starts the workers; stop ends them. Requests run with ctx. An eighth of the
// workers, at least one of several, and a quarter of the queue are for small requests only.
func newWorkerPool(ctx context.Context, workers, maxQueued int) *workerPool {
	kept := workers / 8
	if kept == 0 && workers > 1 {
		kept = 1
	}
	perConn := workers - workers/8
	p := &workerPool{
		maxQueued:  [numSizes]int{maxQueued, maxQueued - maxQueued/4},
		maxRunning: [numSizes]int{workers, workers - kept},
		maxPerConn: [numSizes]int{perConn, max(1, perConn-kept)},
	}
	p.ready.L = &p.mu
	for range workers {
		p.workers.Go(func() { p.runRequests(ctx) })
	}
	return p
}

// submit queues a request. It returns false if the queue is full for its connection: a
// connection may queue at most as many requests of a size as there are free places. So n busy
// connections leave 1/(n+1) of the queue free.
func (p *workerPool) submit(q *connQueue, r *remoteRequest) bool {
	size := smallSize
	if !r.isSmall() {
		size = largeSize
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	free := p.maxQueued[smallSize] - p.numQueued()
	if size == largeSize {
		free = min(free, p.maxQueued[largeSize]-p.queued[largeSize])
	}
	if len(q.requests[size]) >= free {
		return false
	}
	q.requests[size] = append(q.requests[size], r)
	p.queued[size]++
	p.markRunnable(q)
	return true
}

// numQueued returns the requests in all queues. mu is held.
func (p *workerPool) numQueued() int { return p.queued[smallSize] + p.queued[largeSize] }

// markRunnable lists a connection for each size of which a worker may take its next request.
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

// mayRun reports whether a connection has a request of the size and few enough workers.
func (p *workerPool) mayRun(q *connQueue, size requestSize) bool {
	return len(q.requests[size]) > 0 &&
		q.running[smallSize]+q.running[largeSize] < p.maxPerConn[smallSize] &&
		(size == smallSize || q.running[largeSize] < p.maxPerConn[largeSize])
}

// runRequests runs requests until the pool is closed and its queue is empty.
func (p *workerPool) runRequests(ctx context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		q, size := p.nextConn()
		if q == nil {
			if p.closed && p.numQueued() == 0 {
				return
			}
			p.ready.Wait()
			continue
		}
		r := p.dequeue(q, size)
		p.mu.Unlock()
		r.run(ctx)
		p.mu.Lock()
		q.running[size]--
		p.running[size]--
		p.markRunnable(q)
		if len(p.conns[largeSize]) > 0 {
			p.ready.Signal() // there may have been too many large requests for it
		}
	}
}

// nextConn removes the connection to serve next from its list, and returns the size of the
// request to take from it. It returns nil if there is none. mu is held.
func (p *workerPool) nextConn() (*connQueue, requestSize) {
	for _, size := range [...]requestSize{largeSize - p.lastSize, p.lastSize} { // alternately
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

// dequeue removes the next request of a size from the queue. Its connection goes to the end
// of the list. mu is held.
func (p *workerPool) dequeue(q *connQueue, size requestSize) *remoteRequest {
	r := q.requests[size][0]
	q.requests[size][0] = nil
	q.requests[size] = q.requests[size][1:]
	q.running[size]++
	p.running[size]++
	p.lastSize = size
	if p.queued[size]--; p.closed && p.numQueued() == 0 {
		p.ready.Broadcast() // no worker need wait any longer
	}
	p.markRunnable(q)
	return r
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

// workerPools are the two pools of a server, so that lookups do not wait for slow resets or
// stores.
type workerPools struct {
	reads, writes *workerPool
	cancel        context.CancelFunc // ends the context of all requests
}

// startWorkerPools starts the pools for a backend. It returns nil over the memory index.
func startWorkerPools(backend *lookup.SharedBackend) *workerPools {
	if backend == nil {
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	cfg := backend.Config()
	return &workerPools{
		reads:  newWorkerPool(ctx, cfg.Workers, cfg.Queue),
		writes: newWorkerPool(ctx, cfg.WriteWorkers, cfg.Queue),
		cancel: cancel,
	}
}

// stop cancels the running requests and waits for the workers. p may be nil.
func (p *workerPools) stop() {
	if p == nil {
		return
	}
	p.cancel()
	p.reads.stop()
	p.writes.stop()
}
