package client

import (
	"context"
	"os"
	"slices"
	"time"

	"github.com/hitline/hitline/lookup/api"
)

// call is a request in a pipe. From submit until it is done, pipe.mu guards it.
type call struct {
	request
	state     callState
	abandoned bool   // its caller waits only until the blob is not read any longer
	answered  bool   // its reply came while it was being written
	slot      uint32 // valid from callWriting on

	hit    api.Hit  // of a lookup
	frames [][]byte // of the reply to any other request; a copy
	err    error

	done  chan struct{} // capacity 1; holds a token once the call is done; nil if asynchronous
	timer *time.Timer   // of await, reused

	async    *asyncCall // nil if a caller waits
	instance bool       // see newInstanceCall
}

// callState is how far a call has come.
type callState uint8

const (
	callQueued    callState = iota // in pipe.queue
	callPreparing                  // not in the queue yet: its blob is being copied
	callWriting                    // the write reads its blob
	callSent                       // its blob is not read any longer
	callDone
)

// callList is a list of calls that is pooled by pointer.
type callList struct{ list []*call }

// getCallList returns an empty list from the pool.
func (p *pipe) getCallList() *callList { return p.lists.Get().(*callList) }

// putCallList returns a list to the pool.
func (p *pipe) putCallList(l *callList) {
	clear(l.list)
	l.list = l.list[:0]
	p.lists.Put(l)
}

// getCall returns a call to submit, from the pool.
func (p *pipe) getCall(r request) *call {
	cl := p.calls.Get().(*call)
	cl.request = r
	return cl
}

// putCall returns a call that is done to the pool.
func (p *pipe) putCall(cl *call) {
	*cl = call{done: cl.done, timer: cl.timer}
	p.calls.Put(cl)
}

// submit queues the calls that are not nil. If the pipe is closed they fail at once.
func (p *pipe) submit(calls ...*call) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, cl := range calls {
		if cl != nil {
			p.enqueue(cl)
		}
	}
	if !p.closed {
		p.wakeWriter()
	}
}

// enqueue queues a call, or fails it if the pipe is closed. mu is held.
func (p *pipe) enqueue(cl *call) {
	if p.closed {
		p.finish(cl, connectError(errClosed))
		return
	}
	p.queue = append(p.queue, cl)
}

// finish marks a call as done. mu is held.
func (p *pipe) finish(cl *call, err error) {
	cl.state, cl.err = callDone, err
	if cl.async != nil {
		cl.async.onDone(cl)
		return
	}
	cl.done <- struct{}{}
}

// lookup makes a lookup and waits for it.
func (p *pipe) lookup(ctx context.Context, deadline time.Time, r request) (api.Hit, error) {
	if err := ctx.Err(); err != nil {
		return api.Hit{}, exchangeError(err)
	}
	cl := p.getCall(r)
	defer p.putCall(cl)
	p.submit(cl)
	if err := p.await(ctx, cl, deadline); err != nil {
		return api.Hit{}, err
	}
	return cl.hit, cl.err
}

// roundTrip makes any other request, waits for its reply and returns a copy of it.
func (p *pipe) roundTrip(ctx context.Context, deadline time.Time, r request) ([][]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, exchangeError(err)
	}
	cl := p.getCall(r)
	defer p.putCall(cl)
	p.submit(cl)
	if err := p.await(ctx, cl, deadline); err != nil {
		return nil, err
	}
	return cl.frames, cl.err
}

// await waits until a submitted call is done, and then returns nil: the call's own error is
// in the call. It returns an error if ctx or the deadline ends first; the call is then
// abandoned.
func (p *pipe) await(ctx context.Context, cl *call, deadline time.Time) error {
	select {
	case <-cl.done:
		return nil
	default:
	}
	var expired <-chan time.Time
	if at, ok := ctx.Deadline(); !deadline.IsZero() && (!ok || deadline.Before(at)) {
		if cl.timer == nil {
			cl.timer = time.NewTimer(time.Until(deadline))
		} else {
			cl.timer.Reset(time.Until(deadline))
		}
		defer cl.timer.Stop()
		expired = cl.timer.C
	}
	select {
	case <-cl.done:
		return nil
	case <-ctx.Done():
		return p.abandonCall(cl, ctx.Err())
	case <-expired:
		return p.abandonCall(cl, os.ErrDeadlineExceeded)
	}
}

// abandonCall abandons a call unless it is done. It returns when its blob is not read any
// longer.
func (p *pipe) abandonCall(cl *call, why error) error {
	p.mu.Lock()
	state := cl.state
	why = p.unansweredError(why)
	p.abandonLocked(cl)
	p.mu.Unlock()
	switch state {
	case callDone:
		<-cl.done
		return nil
	case callWriting:
		<-cl.done
	}
	return why
}

// unansweredError returns the error of a call that is abandoned. mu is held.
func (p *pipe) unansweredError(why error) error {
	if p.conn == nil {
		return connectError(why)
	}
	return exchangeError(why)
}

// abandonLocked unlinks a call whose answer nobody waits for. If it is being written,
// blobWritten does so. mu is held.
func (p *pipe) abandonLocked(cl *call) {
	switch cl.state {
	case callQueued:
		if i := slices.Index(p.queue, cl); i >= 0 {
			p.queue = slices.Delete(p.queue, i, i+1)
		}
	case callSent:
		p.slots[cl.slot].call = nil
	case callWriting:
		cl.abandoned = true
		if cl.async == nil && p.conn != nil && p.resumable {
			p.interrupted = true
			_ = p.conn.SetWriteDeadline(aLongTimeAgo)
		}
	}
}

// failQueued fails those of the calls that are still in the queue.
func (p *pipe) failQueued(calls []*call, why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, cl := range calls {
		if cl != nil && cl.state == callQueued {
			cl.abandoned = true
		}
	}
	p.queue = slices.DeleteFunc(p.queue, func(cl *call) bool {
		if cl.abandoned {
			p.finish(cl, why)
		}
		return cl.abandoned
	})
}
