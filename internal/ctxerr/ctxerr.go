// Package ctxerr reports whether a context has ended, as sockets see it.
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
