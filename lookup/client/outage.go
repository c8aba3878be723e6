package client

import (
	"context"
	"errors"
	"os"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"
)

const (
	// redialPause is between two dials that calls wait for.
	redialPause = 10 * time.Millisecond
	// seenLately is how long after the server was there calls that block wait for a connection.
	seenLately = 5 * time.Second
	// The pause between dials that no call waits for begins at minBackoff, doubles up to maxBackoff, and is
	// randomized by half.
	minBackoff = 10 * time.Millisecond
	maxBackoff = time.Second
)

// outage decides, while a transport has no connection, when it dials and which calls wait for that. A failed
// dial is repeated every redialPause while a call waits. Once a call has waited in vain until its deadline, or
// none waits, calls fail at once, and dials go on in the background until the server answers.
// transport.mu guards it.
type outage struct {
	seenAt   time.Time // when the server was there last; zero if never
	lastErr  error     // of the last attempt; nil if the server has answered since
	failFast bool      // calls fail at once
	nextDial time.Time
	pauses   *backoff.ExponentialBackOff // while failFast
}

// newPauses returns the pauses between dials that no call waits for.
func newPauses() *backoff.ExponentialBackOff {
	pauses := backoff.NewExponentialBackOff()
	pauses.InitialInterval, pauses.Multiplier, pauses.MaxInterval, pauses.RandomizationFactor = minBackoff, 2, maxBackoff, 0.5
	pauses.Reset()
	return pauses
}

// end ends the outage: the server has answered.
func (o *outage) end() {
	o.seenAt, o.lastErr, o.failFast = time.Now(), nil, false
	o.pauses.Reset()
}

// error returns the error of a call that does not wait.
func (o *outage) error() error {
	return connectError(&BackoffError{RetryIn: max(time.Until(o.nextDial), 0), Err: o.lastErr})
}

// waits reports whether a call waits for the next dial after one that failed.
func (o *outage) waits(cl *call) bool {
	return cl.waited || cl.async != nil || time.Since(o.seenAt) <= seenLately
}

// dialDue reports whether to dial now. If that is later it has the writer woken then. mu is held.
func (t *transport) dialDue() bool {
	if len(t.queue) == 0 && !t.outage.failFast {
		return false
	}
	wait := time.Until(t.outage.nextDial)
	if wait <= 0 {
		return true
	}
	if t.redial != nil {
		t.redial.Stop()
	}
	t.redial = time.AfterFunc(wait, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.wakeWriter()
	})
	return false
}

// dialFailed is called after an attempt that failed, or whose connection was lost before the server had answered.
// mu is held.
func (t *transport) dialFailed(err error) {
	o := &t.outage
	o.lastErr, o.nextDial = err, time.Now().Add(t.dialer.pause)
	giveUp, some := o.failFast || !isConnError(err) || isAnswer(err), false
	for _, cl := range t.queue {
		giveUp = giveUp || cl.waited && cl.async != nil && cl.async.expired()
		cl.waited = o.waits(cl)
		some = some || cl.waited
	}
	if giveUp || !some {
		t.failFast()
	} else {
		t.queue = slices.DeleteFunc(t.queue, func(cl *call) bool {
			if !cl.waited {
				t.finish(cl, o.error())
			}
			return !cl.waited
		})
	}
	if !isConnError(err) { // a timeout of this dial must not match that of a later call
		o.lastErr = errors.New(err.Error())
	}
}

// failFast fails all calls in the queue, and has later ones fail at once until the server answers. mu is held.
func (t *transport) failFast() {
	o := &t.outage
	o.failFast = true
	o.nextDial = time.Now().Add(o.pauses.NextBackOff())
	for _, cl := range t.queue {
		t.finish(cl, o.error())
	}
	clear(t.queue)
	t.queue = t.queue[:0]
	t.wakeWriter() // which waits for nextDial
}

// waitedInVain reports whether a call that is about to be abandoned has waited for a connection until its deadline.
// mu is held.
func (t *transport) waitedInVain(cl *call, why error) bool {
	isDeadline := errors.Is(why, os.ErrDeadlineExceeded) || errors.Is(why, context.DeadlineExceeded)
	return cl.state == callQueued && cl.waited && t.outage.lastErr != nil && isDeadline
}

// sendsAgain reports whether a call goes to the next connection that was sent on one which has ended. It does once, if
// it changes nothing, and if the server's last reply was no refusal: that may have been its reason. mu is held.
func (t *transport) sendsAgain(cl *call, why error) bool {
	return !t.closed && !cl.sentAgain && cl.changesNothing() && !t.refusedLast && !isAnswer(why)
}

// isAnswer reports whether an error is what the server has said.
func isAnswer(err error) bool {
	return errors.Is(err, ErrRefused) || errors.Is(err, ErrReply) || errors.Is(err, ErrRequest)
}
