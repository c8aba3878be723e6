package lookup

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hitline/hitline/bufpool"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/admission"
	"github.com/hitline/hitline/internal/requesterror"
)

// Renewer makes the renewals that connections ask for, of all services over one backend: in one
// goroutine, one call of the backend at a time, for each connection in turn. It spreads calls, so
// that a request is done before half of a lease is over and lookups are delayed as little as can
// be. What it cannot do is counted as dropped: api.Stat.RenewalsDropped. Safe for concurrent use.
type Renewer struct {
	backend  *SharedBackend
	account  *MemoryAccount
	bytes    *admission.Admission // of the queue
	maxBytes int64
	wake     chan struct{} // holds an element when there is something new for run
	ended    sync.WaitGroup
	cancel   context.CancelFunc
	dropped  atomic.Pointer[error] // why the first request was dropped, nil for none

	mu    sync.Mutex     // guards what follows
	turns []*renewalTurn // of the connections that have requests, the next one first
	conns map[any]*renewalTurn
	calls int // that are left of all requests, at most
}

// renewalTurn is the requests of one connection, the oldest first.
type renewalTurn struct {
	conn     any
	requests []*queuedRenewal
	bytes    int64
}

// queuedRenewal owns its hashes.
type queuedRenewal struct {
	renewal
	owned *bufpool.Buffer
	bytes int64
}

// queuedBytes is about what a queued request takes beside its hashes.
const queuedBytes = 1 << 10

// StartRenewer returns a Renewer whose requests are counted in account, nil for none. The caller
// must call Stop.
func StartRenewer(backend *SharedBackend, account *MemoryAccount) *Renewer {
	ctx, cancel := context.WithCancel(context.Background())
	maxBytes := backend.cfg.maxRenewalBytes()
	r := &Renewer{
		backend: backend, account: account, bytes: admission.New(maxBytes), maxBytes: maxBytes,
		wake: make(chan struct{}, 1), cancel: cancel, conns: map[any]*renewalTurn{},
	}
	r.ended.Go(func() { r.run(ctx) })
	return r
}

// Stop ends the goroutine and empties the queue. Add must not be called any more.
func (r *Renewer) Stop() {
	r.cancel()
	r.ended.Wait()
	for len(r.turns) > 0 {
		r.remove(r.turns[0])
	}
}

// errRenewalsFull drops a request.
var errRenewalsFull = errors.New("too many wait, or all requests hold as much memory as limits.max_memory allows")

// Add queues a request of a connection to renew the blocks of hashes of hashLen bytes, which it
// takes over, or drops it. conn tells connections apart. The service must be one of the backend,
// and CheckRenew return nil. Add does not wait: event loops call it. A connection may have as many
// bytes in the queue as it leaves free.
func (r *Renewer) Add(conn any, service *Service, hashes *bufpool.Buffer, hashLen int) {
	if cap(hashes.B) > 2*len(hashes.B) { // a pooled array may be far larger, and would be held for seconds
		large := hashes
		hashes = &bufpool.Buffer{B: slices.Clone(large.B)}
		large.Release()
	}
	view := coordinator.NewHashes(hashes.B, hashLen)
	if checkKeys(view) != nil || view.Len() == 0 {
		hashes.Release()
		return
	}
	q := &queuedRenewal{renewal: *newRenewal(service, view), owned: hashes, bytes: int64(cap(hashes.B)) + queuedBytes}
	if !r.queue(conn, q) {
		hashes.Release()
		r.drop(service.remote, errRenewalsFull)
		return
	}
	r.signal()
}

// signal lets run look for what is new.
func (r *Renewer) signal() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// queue adds q to the requests of a connection. It returns false if there is no room.
func (r *Renewer) queue(conn any, q *queuedRenewal) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.conns[conn]
	held := int64(0)
	if t != nil {
		held = t.bytes
	}
	if !r.bytes.Admit(q.bytes, q.isSmall(), held) {
		return false
	}
	if !r.account.Reserve(q.bytes) {
		r.bytes.Free(q.bytes, q.isSmall())
		return false
	}
	if t == nil {
		t = &renewalTurn{conn: conn}
		r.conns[conn], r.turns = t, append(r.turns, t)
	}
	t.requests, t.bytes = append(t.requests, q), held+q.bytes
	r.calls += q.calls
	return true
}

func (q *queuedRenewal) isSmall() bool { return q.bytes <= admission.SmallBytes }

// remove removes the first request of a connection, and the connection with its last one. run calls
// it, and Stop.
func (r *Renewer) remove(t *renewalTurn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	q := t.requests[0]
	_ = requesterror.Run(q.end)
	t.requests[0], t.requests = nil, t.requests[1:]
	t.bytes -= q.bytes
	r.calls -= q.calls
	r.bytes.Free(q.bytes, q.isSmall())
	r.account.Free(q.bytes)
	q.owned.Release()
	if len(t.requests) == 0 {
		delete(r.conns, t.conn)
		i := slices.Index(r.turns, t)
		r.turns = slices.Delete(r.turns, i, i+1)
	}
}

// drop counts a request that was not done, or not to its end. run logs the first one.
func (r *Renewer) drop(pool *PoolBackend, why error) {
	pool.renewalsDropped.Add(1)
	if r.dropped.CompareAndSwap(nil, &why) {
		r.signal()
	}
}

// run makes calls until ctx ends.
func (r *Renewer) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var p pacer
	for logged := false; ctx.Err() == nil; {
		if why := r.dropped.Load(); why != nil && !logged {
			logged = true
			r.backend.health.log.logger.Warn("renewals are dropped: the store may evict blocks that engines are about to load",
				"backend", r.backend.Name(), "error", *why, "metric", "hitline_renewals_dropped_total")
		}
		t, due := r.next(&p)
		if t != nil && !time.Now().Before(due) {
			r.serve(ctx, &p, t)
			continue
		}
		if t != nil {
			timer.Reset(time.Until(due))
		}
		select {
		case <-timer.C:
		case <-r.wake:
		case <-ctx.Done():
		}
	}
}

// next returns the connection whose turn it is, nil if there are no requests, and when its call is due.
func (r *Renewer) next(p *pacer) (*renewalTurn, time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.turns) == 0 {
		return nil, time.Time{}
	}
	first := r.turns[0].requests[0]
	for _, t := range r.turns {
		if t.requests[0].target.Before(first.target) {
			first = t.requests[0]
		}
	}
	// The fuller the queue is, the sooner the next call is due, so that it does not overflow.
	due := p.due(&first.renewal, r.calls)
	if wait := time.Until(due); wait > 0 {
		due = due.Add(-time.Duration(float64(wait) * float64(r.bytes.Held()) / float64(r.maxBytes)))
	}
	return r.turns[0], p.notBefore(due)
}

// serve makes the next call of the first request of a connection, and moves the connection to the
// end of the turns. A request that fails is dropped, and so is what a panic has ended: it is that
// request's alone.
func (r *Renewer) serve(ctx context.Context, p *pacer, t *renewalTurn) {
	r.mu.Lock()
	q := t.requests[0]
	r.mu.Unlock()
	before := q.calls
	err := requesterror.Call(func() error { return p.ask(ctx, &q.renewal) })
	r.mu.Lock()
	r.calls += q.calls - before
	r.turns = append(slices.Delete(r.turns, 0, 1), t)
	r.mu.Unlock()
	if err == nil && q.calls > 0 {
		return
	}
	if err != nil && ctx.Err() == nil {
		r.drop(q.pool, err)
	}
	if errors.Is(err, requesterror.ErrFault) {
		r.backend.health.log.logger.Error("a fault of hitline in a renewal", "error", err)
	}
	r.remove(t)
}

// pacer spreads calls over time.
type pacer struct{ began, ended time.Time } // of the last call

// due returns when the next of so many calls is to begin, so that the last of them begins at the
// target of first, which is the oldest of all requests. The first call of a request that finds
// nothing to do is due at once.
func (p *pacer) due(first *renewal, calls int) time.Time {
	if p.began.Before(first.made) {
		return first.made
	}
	return p.began.Add(first.target.Sub(p.began) / time.Duration(max(1, calls)))
}

// notBefore puts off a call until the store has had as long a pause as the last call took.
func (p *pacer) notBefore(due time.Time) time.Time {
	if rested := p.ended.Add(p.ended.Sub(p.began)); due.Before(rested) {
		return rested
	}
	return due
}

// ask makes a call.
func (p *pacer) ask(ctx context.Context, n *renewal) error {
	p.began = time.Now()
	defer func() { p.ended = time.Now() }()
	return n.ask(ctx)
}
