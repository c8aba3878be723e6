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
type workerPool struct {
	maxQueued  int // requests in all queues
	maxPerConn int // workers that serve one connection at a time

	mu      sync.Mutex
	ready   sync.Cond    // a connection is runnable, or the pool is closed
	conns   []*connQueue // the runnable connections, each once, in round-robin order
	queued  int          // requests in all queues
	closed  bool
	workers sync.WaitGroup
}

// connQueue holds the requests of one connection that wait for a worker of one pool.
// workerPool.mu guards it.
type connQueue struct {
	requests []*remoteRequest
	running  int  // requests that workers have taken
	runnable bool // listed in workerPool.conns: it has a request and is below maxPerConn
}

// newWorkerPool starts the workers; stop ends them. Requests run with ctx.
func newWorkerPool(ctx context.Context, workers, maxQueued int) *workerPool {
	p := &workerPool{maxQueued: maxQueued, maxPerConn: workers - workers/8}
	p.ready.L = &p.mu
	for range workers {
		p.workers.Go(func() { p.work(ctx) })
	}
	return p
}

// submit queues a request. It returns false if the queue is full for its connection: a
// connection may queue at most as many requests as there are free places. So n busy
// connections leave 1/(n+1) of the queue free.
func (p *workerPool) submit(q *connQueue, r *remoteRequest) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(q.requests) >= p.maxQueued-p.queued {
		return false
	}
	q.requests = append(q.requests, r)
	p.queued++
	p.markRunnable(q)
	return true
}

// markRunnable lists a connection if a worker may take its next request. mu is held.
func (p *workerPool) markRunnable(q *connQueue) {
	if q.runnable || len(q.requests) == 0 || q.running >= p.maxPerConn {
		return
	}
	q.runnable = true
	p.conns = append(p.conns, q)
	p.ready.Signal()
}

// work runs requests until the pool is closed and its queue is empty.
func (p *workerPool) work(ctx context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		for len(p.conns) == 0 {
			if p.closed && p.queued == 0 {
				return
			}
			p.ready.Wait()
		}
		q, r := p.dequeue()
		p.mu.Unlock()
		r.run(ctx)
		p.mu.Lock()
		q.running--
		p.markRunnable(q)
	}
}

// dequeue removes the next request from the queue. Its connection goes to the end of the
// list. mu is held.
func (p *workerPool) dequeue() (*connQueue, *remoteRequest) {
	q := p.conns[0]
	p.conns[0] = nil
	p.conns = p.conns[1:]
	r := q.requests[0]
	q.requests[0] = nil
	q.requests = q.requests[1:]
	q.runnable = false
	q.running++
	if p.queued--; p.closed && p.queued == 0 {
		p.ready.Broadcast() // no worker need wait any longer
	}
	p.markRunnable(q)
	return q, r
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
