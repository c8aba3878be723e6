package server

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/hitline/hitline/bufpool"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup"
)

// renewals renews what clients ask for, in one goroutine, one request after the other. A request is answered
// when it is queued. What does not fit the queue is dropped: a client asks again.
type renewals struct {
	queue chan renewal
	bytes atomic.Int64 // of hashes that are queued
	ended sync.WaitGroup
}

// renewal is a request to renew. Its hashes belong to the queue.
type renewal struct {
	service *lookup.Service
	hashes  *bufpool.Buffer
	hashLen int
}

const (
	// maxRenewals bounds the requests in the queue, and maxRenewalBytes their hashes: half a million, or the
	// largest request alone.
	maxRenewals     = 64
	maxRenewalBytes = 16 << 20
)

// start starts the goroutine, which ends with ctx.
func (r *renewals) start(ctx context.Context) {
	r.queue = make(chan renewal, maxRenewals)
	r.ended.Go(func() { r.run(ctx) })
}

// add queues a renewal, or drops it. Event loops call it.
func (r *renewals) add(n renewal) {
	size := int64(len(n.hashes.B))
	if before := r.bytes.Add(size) - size; before == 0 || before+size <= maxRenewalBytes {
		select {
		case r.queue <- n:
			return
		default:
		}
	}
	r.release(n)
}

// run renews until ctx ends. What fails is left: a client asks again.
func (r *renewals) run(ctx context.Context) {
	for {
		select {
		case n := <-r.queue:
			_ = n.service.Renew(ctx, coordinator.NewHashes(n.hashes.B, n.hashLen))
			r.release(n)
		case <-ctx.Done():
			return
		}
	}
}

// stop waits until the goroutine has ended, whose ctx has, and empties the queue. add must not be called any more.
func (r *renewals) stop() {
	r.ended.Wait()
	for len(r.queue) > 0 {
		r.release(<-r.queue)
	}
}

func (r *renewals) release(n renewal) {
	r.bytes.Add(-int64(len(n.hashes.B)))
	n.hashes.Release()
}

// applyRenew queues the hashes of a renew and answers it.
func applyRenew(s *session, j *job) error {
	if err := j.service.CheckRenew(); err != nil {
		return err
	}
	s.server.renewals.add(renewal{service: j.service, hashes: j.takeHashes(), hashLen: j.q.HashLen})
	j.done(nil)
	return nil
}
