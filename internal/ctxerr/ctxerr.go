// Package ctxerr reports whether a context has ended, as sockets see it, and says so to users.
package ctxerr

import (
	"context"
	"time"
)

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

type explained struct{ cause, err error }

func (e *explained) Error() string   { return e.err.Error() }
func (e *explained) Unwrap() []error { return []error{e.cause, e.err} }
