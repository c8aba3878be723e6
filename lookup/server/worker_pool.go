package server

import (
	"context"
	"sync"

	"github.com/hitline/hitline/lookup"
)

// workerPool is a bounded queue of remote requests and the goroutines that run them.
//
// Connections are served in turn, one request each, so a connection that pipelines a
// thousand lookups delays another by one of them and not by all. For the same reason no
// connection has all workers at a time, and none can fill the queue.
type workerPool struct {
	maxQueued  int // requests that may wait
	maxPerConn int // workers that may serve one connection at a time

	mu      sync.Mutex
	ready   sync.Cond    // a connection is runnable, or the pool is closed
	conns   []*connQueue // those with a request waiting and below maxPerConn, each once
	queued  int          // requests in all queues
	closed  bool
	workers sync.WaitGroup
}

// connQueue holds the requests of one connection that wait for a worker of one pool.
// workerPool.mu guards it.
type connQueue struct {
	requests []*remoteRequest
	running  int
	runnable bool // listed in workerPool.conns
}

// newWorkerPool starts the goroutines; stop ends them.
func newWorkerPool(ctx context.Context, workers, maxQueued int) *workerPool {
	p := &workerPool{maxQueued: maxQueued, maxPerConn: workers - workers/8}
	p.ready.L = &p.mu
	for range workers {
		p.workers.Go(func() { p.work(ctx) })
	}
	return p
}

// submit queues a request; false says that the queue is full for its connection. A
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

// markRunnable lists a connection if a worker may take its next request. p.mu is held.
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
		q, r := p.next()
		p.mu.Unlock()
		r.run(ctx)
		p.mu.Lock()
		q.running--
		p.markRunnable(q)
	}
}

// next takes a request off the queue; its connection goes to the end of the list. p.mu
// is held.
func (p *workerPool) next() (*connQueue, *remoteRequest) {
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

// stop waits until the queue is empty and the goroutines have ended. Nothing may be
// submitted any more.
func (p *workerPool) stop() {
	p.mu.Lock()
	p.closed = true
	p.ready.Broadcast()
	p.mu.Unlock()
	p.workers.Wait()
}

// workerPools are a server's two: lookups do not wait for workers that are busy with
// slow resets or stores.
type workerPools struct {
	reads, writes *workerPool
	cancel        context.CancelFunc
}

// startWorkerPools starts what the service's backend needs, nil over the memory index.
func startWorkerPools(remote *lookup.Remote) *workerPools {
	if remote == nil {
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	cfg := remote.Config()
	return &workerPools{
		reads:  newWorkerPool(ctx, cfg.Workers, cfg.Queue),
		writes: newWorkerPool(ctx, cfg.WriteWorkers, cfg.Queue),
		cancel: cancel,
	}
}

// stop cancels what still runs and waits for the goroutines.
func (p *workerPools) stop() {
	if p == nil {
		return
	}
	p.cancel()
	p.reads.stop()
	p.writes.stop()
}
