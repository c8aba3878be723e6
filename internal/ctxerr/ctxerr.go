// Package ctxerr reports whether a context has ended, as sockets see it, and says so to users.
package ctxerr

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// LongAgo, set as the deadline of a socket, ends its reads, writes and accepts at once.
var LongAgo = time.Unix(1, 0)

// Of returns the error of ctx, also if its deadline has passed but ctx has not ended yet: a
// socket may see the deadline a little earlier.
func Of(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	return nil
}

// Explain returns an error with the text of err that wraps cause, too: the error of a context that has ended, whose
// own text says neither who was waited for nor how long.
func Explain(cause, err error) error { return &explained{cause, err} }

// Late is the error of a wait since began that the end of a context has cut off, as Explain makes it. cause is the error of
// the context. what says what has not come; a caller that leaves says nothing of who was waited for.
func Late(cause error, began time.Time, what string) error {
	if errors.Is(cause, context.Canceled) {
		return Explain(cause, errors.New("the call was given up"))
	}
	return Explain(cause, fmt.Errorf("%s within %v", what, time.Since(began).Round(time.Millisecond)))
}

type explained struct{ cause, err error }

func (e *explained) Error() string   { return e.err.Error() }
func (e *explained) Unwrap() []error { return []error{e.cause, e.err} }
