package measure

import (
	"context"
	"errors"
)

// Errors of all measurements. A command's exit code hangs on them.
var (
	// ErrOptions marks options that make no sense, or not together.
	ErrOptions = errors.New("bad options")
	// ErrLost marks a server or program that did not start, could not be reached, was lost,
	// or did not answer in time.
	ErrLost = errors.New("no connection")
	// ErrAnswer marks what is no answer to what was asked, or was not asked for.
	ErrAnswer = errors.New("bad answer")
	// ErrRefused marks an answer that says "not served", after which the connection is still good.
	ErrRefused = errors.New("refused")
)

// CauseOf returns the cause of ctx being done, if it is: whatever else failed, failed of it. Else
// it returns err.
func CauseOf(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
