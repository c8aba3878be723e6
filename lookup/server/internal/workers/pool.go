// Package workers runs the jobs of many connections on a bounded number of goroutines.
package workers

import (
	"runtime"
	"sync"
)

// Pool is a queue of jobs and the workers that run them. What a connection may queue is for its callers to bound.
//
// Connections are served round-robin, one job each, so a connection that pipelines a
// thousand lookups delays another by one of them. For the same reason no connection may
// have all workers.
//
// Small and large jobs have queues of their own, which workers take from alternately. Some
// workers are reserved for small jobs, so that these do not wait for large ones to end.
type Pool struct {
	maxRunning [numSizes]int // workers that serve jobs of the size at a time
	maxPerConn [numSizes]int // workers that serve one connection at a time, of them with large jobs

	mu       sync.Mutex
	ready    sync.Cond          // a connection is runnable, or the pool is closed
	conns    [numSizes][]*Queue // the runnable connections, each once, in round-robin order
	queued   int                // jobs in all queues
	running  [numSizes]int      // jobs that workers have taken, by size
	lastSize Size               // of the job that a worker took last
	closed   bool
	workers  sync.WaitGroup
}

// Size is how much work a job is.
type Size int

// Sizes of jobs.
const (
	Small Size = iota
	Large
	numSizes
)

// Job is what a worker runs.
type Job interface {
	Size() Size
	Run() // it does not panic
}

// Queue holds the jobs of one connection that wait for a worker of one pool, and belongs to that pool. Its zero value
// is empty.
type Queue struct {
	jobs     [numSizes][]Job
	running  [numSizes]int  // jobs that workers have taken
	runnable [numSizes]bool // listed in Pool.conns
}

// New starts the workers; Stop ends them. An eighth of the workers, at least one of several,
// are for small jobs only.
func New(workers int) *Pool {
	reserved := workers / 8
	if reserved == 0 && workers > 1 {
		reserved = 1
	}
	perConn := workers - workers/8
	p := &Pool{
		maxRunning: [numSizes]int{workers, workers - reserved},
		maxPerConn: [numSizes]int{perConn, max(1, perConn-reserved)},
	}
	p.ready.L = &p.mu
	for range workers {
		p.workers.Go(p.runJobs)
	}
	return p
}

// Submit queues a job of a connection. It does not wait.
func (p *Pool) Submit(q *Queue, j Job) {
	size := j.Size()
	p.mu.Lock()
	defer p.mu.Unlock()
	q.jobs[size] = append(q.jobs[size], j)
	p.queued++
	p.markRunnable(q)
}

// markRunnable lists a connection for each size of which a worker may take its next job.
// mu is held.
func (p *Pool) markRunnable(q *Queue) {
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
func (p *Pool) mayRun(q *Queue, size Size) bool {
	return len(q.jobs[size]) > 0 &&
		q.running[Small]+q.running[Large] < p.maxPerConn[Small] &&
		(size == Small || q.running[Large] < p.maxPerConn[Large])
}

// runJobs runs jobs until the pool is closed and its queue is empty.
func (p *Pool) runJobs() {
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
		j.Run()
		runtime.Gosched() // an event loop may wait for the processor
		p.mu.Lock()
		q.running[size]--
		p.running[size]--
		p.markRunnable(q)
		if len(p.conns[Large]) > 0 {
			p.ready.Signal() // there may have been too many large jobs for it
		}
	}
}

// nextConn removes the connection to serve next from its list, and returns the size of the
// job to take from it. It returns nil if there is none. mu is held.
func (p *Pool) nextConn() (*Queue, Size) {
	for _, size := range [...]Size{Large - p.lastSize, p.lastSize} { // alternately
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
func (p *Pool) dequeue(q *Queue, size Size) Job {
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

// Stop waits until the queue is empty and the workers have ended. Submit must not be called any more.
func (p *Pool) Stop() {
	p.mu.Lock()
	p.closed = true
	p.ready.Broadcast()
	p.mu.Unlock()
	p.workers.Wait()
}
