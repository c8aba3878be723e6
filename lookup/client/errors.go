package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"
)

// Every error of a call wraps one of these. Match them with errors.Is.
var (
	// ErrRefused says that the server answered 00: it understood the request but did
	// not serve it.
	ErrRefused = errors.New("client: refused by the server")
	// ErrNotAllowed says that the client may not make this request: neither its token or client
	// certificate nor the listener of the server allows it. It comes together with ErrRefused.
	ErrNotAllowed = errors.New("client: not allowed")
	// ErrNotAuthenticated says that the server has refused the client's token. It comes
	// together with ErrRefused.
	ErrNotAuthenticated = errors.New("client: not authenticated")
	// ErrConnect says that the server could not be reached or the connection was lost.
	// The request may have taken effect.
	ErrConnect = errors.New("client: no connection")
	// ErrNoAnswer says that the call's timeout passed or its context ended before an
	// answer came. If the request was sent, it may have taken effect or still do so. It
	// was not sent if all connections were in use or the context had already ended.
	ErrNoAnswer = errors.New("client: no answer")
	// ErrReply says that the server's reply does not follow docs/protocol.md.
	ErrReply = errors.New("client: bad reply")
	// ErrRequest says that the arguments cannot be sent. Nothing was sent.
	ErrRequest = errors.New("client: bad request")
	// ErrFailedOpen says that a lookup was not answered and counts as a miss: see
	// WithFailOpen. The error that wraps it also wraps the cause.
	ErrFailedOpen = errors.New("client: not answered, taken for a miss")
	// ErrPending says that one more lookup of an AsyncClient would exceed the bounds of
	// WithPending.
	ErrPending = errors.New("client: too many lookups are pending")
)

// refusedError is the ErrRefused of a server that gives a reason.
type refusedError struct {
	kind error  // ErrNotAllowed, ErrNotAuthenticated or nil
	text string // of the server
}

func (e *refusedError) Error() string { return ErrRefused.Error() + ": " + e.text }

// Is reports whether target is ErrRefused or the kind.
func (e *refusedError) Is(target error) bool {
	return target == ErrRefused || target == e.kind
}

// connectError wraps an error in ErrConnect unless it wraps a sentinel already.
func connectError(err error) error { return withSentinel(err, ErrConnect) }

// exchangeError wraps the error of a call that had a connection, unless it wraps a
// sentinel already: in ErrConnect if the connection failed, otherwise in ErrNoAnswer.
func exchangeError(err error) error {
	if isConnError(err) {
		return withSentinel(err, ErrConnect)
	}
	return withSentinel(err, ErrNoAnswer)
}

// withSentinel wraps an error in a sentinel unless it wraps one already.
func withSentinel(err, sentinel error) error {
	for _, s := range [...]error{ErrReply, ErrConnect, ErrNoAnswer, ErrRequest, ErrRefused} {
		if errors.Is(err, s) {
			return err
		}
	}
	return fmt.Errorf("%w: %w", sentinel, err)
}

// isConnError reports whether an error is about the connection, and not a timeout or the
// end of a caller's context.
func isConnError(err error) bool {
	return err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) &&
		!errors.Is(err, os.ErrDeadlineExceeded)
}

// timeoutError returns the error of a call that reached its deadline: the context's if
// that set the deadline, otherwise the client's.
func timeoutError(ctx context.Context, deadline time.Time) error {
	if at, ok := ctx.Deadline(); ok && !at.After(deadline) {
		return errContextDeadline
	}
	return os.ErrDeadlineExceeded
}

// errContextDeadline says that a context's deadline has passed. The context's own Err may
// still be nil for a moment.
var errContextDeadline = fmt.Errorf("%w: %w", context.DeadlineExceeded, os.ErrDeadlineExceeded)

// errClosed is the cause of every error after Close.
var errClosed = fmt.Errorf("client is closed: %w", net.ErrClosed)

// errHit is the ErrReply of a lookup whose reply is well framed and no hit. The connection
// can still be used.
var errHit = fmt.Errorf("%w: not a hit", ErrReply)
