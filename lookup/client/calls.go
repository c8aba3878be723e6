package client

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/hitline/hitline/internal/ctxerr"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/netproto"
)

// call is a request in a transport. From submit until it is done, transport.mu guards it.
type call struct {
	request
	state     callState
	abandoned bool          // its caller waits only until the blob is not read any longer
	connect   bool          // waits for the setup of a connection alone: see Dial
	answered  bool          // its reply came while it was being written
	waited    bool          // a dial has failed while it was queued
	sentAgain bool          // the connection that it was sent on first has ended
	slot      uint32        // valid from callWriting on
	delay     time.Duration // of the last try after a refusal as busy

	hit    api.Hit  // of a lookup
	frames [][]byte // of the reply to any other request; a copy
	err    error

	done  chan struct{} // capacity 1; holds a token once the call is done; nil if nobody waits
	timer *time.Timer   // of await, reused

	async  *asyncCall                  // of an AsyncClient, nil otherwise
	handle func(frames [][]byte) error // of the setup, nil otherwise
}

// callState is how far a call has come.
type callState uint8

const (
	callQueued  callState = iota // in transport.queue
	callWriting                  // the write reads its blob
	callSent                     // its blob is not read any longer
	callDelayed                  // in transport.delayed
	callDone
)

// A request that was refused as busy is sent again after minBusyDelay, which doubles up to
// maxBusyDelay.
const (
	minBusyDelay = 10 * time.Millisecond
	maxBusyDelay = 500 * time.Millisecond
)

// getCall returns a call to submit, from the pool.
func (t *transport) getCall(r request) *call {
	cl := t.calls.Get().(*call)
	cl.request = r
	return cl
}

// putCall returns a call that is done to the pool.
func (t *transport) putCall(cl *call) {
	*cl = call{done: cl.done, timer: cl.timer}
	t.calls.Put(cl)
}

// submit queues the calls that are not nil. If the transport is closed they fail at once.
func (t *transport) submit(calls ...*call) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, cl := range calls {
		if cl != nil {
			t.enqueue(cl)
		}
	}
}

// enqueue queues a call, or fails it if the transport is closed or no call waits. mu is held.
func (t *transport) enqueue(cl *call) {
	switch {
	case t.closed:
		t.finish(cl, connectError(errClosed))
		return
	case t.outage.failFast:
		t.finish(cl, t.outage.error())
		return
	}
	cl.state = callQueued
	t.queue = append(t.queue, cl)
	t.wakeWriter()
}

// finish marks a call as done. mu is held.
func (t *transport) finish(cl *call, err error) {
	cl.state, cl.err = callDone, err
	switch {
	case cl.async != nil:
		cl.async.onDone(cl)
	case cl.done != nil:
		cl.done <- struct{}{}
	}
}

// deliver finishes a call that was answered, and sends one anew that was refused as busy. mu is held.
func (t *transport) deliver(cl *call, err error) {
	switch {
	case cl.state == callWriting: // finishBlob delivers it: its blob may still be read
		cl.answered, cl.err = true, err
	case errors.Is(err, ErrBusy):
		t.delayCall(cl, err)
	default:
		t.finish(cl, err)
	}
}

// delayCall queues a call again after a delay. mu is held.
func (t *transport) delayCall(cl *call, busy error) {
	cl.state, cl.err, cl.answered, cl.frames = callDelayed, busy, false, nil
	cl.delay = min(max(2*cl.delay, minBusyDelay), maxBusyDelay)
	var timer *time.Timer
	timer = time.AfterFunc(cl.delay, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.delayed[cl] == timer {
			delete(t.delayed, cl)
			t.enqueue(cl)
		}
	})
	t.delayed[cl] = timer
}

// do makes a request and waits until it is done, which the caller must return to the pool.
func (t *transport) do(ctx context.Context, r request) (*call, error) {
	if err := ctx.Err(); err != nil {
		return nil, exchangeError(err)
	}
	cl := t.getCall(r)
	t.submit(cl)
	if err := t.await(ctx, cl, t.deadline(ctx)); err != nil {
		t.putCall(cl)
		return nil, err
	}
	return cl, nil
}

// deadline returns the client's deadline for a call that begins now, zero if ctx has one.
func (t *transport) deadline(ctx context.Context) time.Time {
	if _, ok := ctx.Deadline(); ok {
		return time.Time{}
	}
	return time.Now().Add(t.timeout)
}

// await waits until a submitted call is done, and then returns nil: the call's own error is in the
// call. It returns an error if ctx or the deadline, unless it is zero, ends first; the call is then
// abandoned.
func (t *transport) await(ctx context.Context, cl *call, deadline time.Time) error {
	select {
	case <-cl.done:
		return nil
	default:
	}
	var expired <-chan time.Time
	if !deadline.IsZero() {
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
		return t.abandonCall(cl, ctx.Err())
	case <-expired:
		return t.abandonCall(cl, os.ErrDeadlineExceeded)
	}
}

// abandonCall abandons a call unless it is done. It returns when its blob is not read any longer.
func (t *transport) abandonCall(cl *call, why error) error {
	t.mu.Lock()
	state, inVain := cl.state, t.waitedInVain(cl, why)
	why = t.unansweredError(cl, why)
	t.abandonLocked(cl)
	if inVain {
		t.failFast()
	}
	t.mu.Unlock()
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
func (t *transport) unansweredError(cl *call, why error) error {
	switch {
	case cl.delay > 0:
		return fmt.Errorf("%w: %w: %w", ErrNoAnswer, why, cl.err)
	case t.conn == nil && t.outage.lastErr != nil:
		return fmt.Errorf("%w: %w: %w", ErrConnect, why, t.outage.lastErr)
	case t.conn == nil:
		return connectError(why)
	}
	if !errors.Is(why, context.Canceled) {
		t.closeSilent()
	}
	return exchangeError(why)
}

// closeSilent closes the connection if replies are due and none came for twice the client's timeout:
// the server may be gone without a word. mu is held.
func (t *transport) closeSilent() {
	if t.inFlight.len() > 0 && t.readErr == nil && time.Since(t.silentAt) >= 2*t.timeout {
		t.readErr = fmt.Errorf("%w: %w for %v", ErrConnect, errSilent, 2*t.timeout)
		closeConn(t.conn)
	}
}

// abandonLocked takes a call out whose answer nobody waits for. If its blob is being written
// finishBlob does so. mu is held.
func (t *transport) abandonLocked(cl *call) {
	switch cl.state {
	case callQueued:
		if i := slices.Index(t.queue, cl); i >= 0 {
			t.queue = slices.Delete(t.queue, i, i+1)
		}
	case callSent:
		t.inFlight.abandon(cl)
	case callDelayed:
		t.delayed[cl].Stop()
		delete(t.delayed, cl)
	case callWriting:
		cl.abandoned = true
		if t.conn != nil && t.socket && cl.async == nil { // an AsyncClient does not wait for its copy
			_ = t.conn.SetWriteDeadline(ctxerr.LongAgo)
		}
		return
	case callDone:
		return
	}
	cl.state = callDone
}

// failQueued fails those of the calls that are still in the queue.
func (t *transport) failQueued(calls []*call, why error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, cl := range calls {
		if cl != nil && cl.state == callQueued {
			cl.abandoned = true
		}
	}
	t.queue = slices.DeleteFunc(t.queue, func(cl *call) bool {
		if cl.abandoned {
			t.finish(cl, why)
		}
		return cl.abandoned
	})
}

// size returns at least how many bytes the request has on the wire.
func (cl *call) size() int64 {
	const maxHead = 128 // but for the lists of a prompt
	n := maxHead + len(cl.blob)
	if p := cl.prompt; p != nil && cl.tag == netproto.TagStorePrompt {
		n += len(p.Ranks) + len(p.States)
	}
	return int64(n)
}
