package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/hitline/hitline/lookup/api"
)

// Every error of a call wraps one of these, but for that of a request that was done in part, which
// wraps api.ErrPartlyDone. Match them with errors.Is.
var (
	// ErrRefused says that the server answered 00: it understood the request but did not serve
	// it. The error is a *RefusedError.
	ErrRefused = errors.New("refused by the server")
	// ErrConnect says that the server could not be reached or the connection was lost.
	// The request may have taken effect.
	ErrConnect = errors.New("no connection")
	// ErrNoAnswer says that the call's context ended, or the client's timeout passed, before an
	// answer came. If the request was sent, it may have taken effect or still do so. If the error
	// wraps ErrBusy too, the server refused it until then.
	ErrNoAnswer = errors.New("no answer")
	// ErrReply says that the server's reply does not follow docs/protocol.md, or cannot be
	// the answer to what was asked.
	ErrReply = errors.New("bad reply")
	// ErrRequest says that the arguments cannot be sent. Nothing was sent.
	ErrRequest = errors.New("bad request")
	// ErrPending says that one more lookup would exceed the bounds of an AsyncClient.
	ErrPending = errors.New("too many lookups are pending")
)

// The codes of a refusal. A *RefusedError wraps one of these, too, if the server tells a code.
var (
	// ErrUnknownRequest says that the server knows no such request.
	ErrUnknownRequest = errors.New("unknown request")
	// ErrBadRequest says that the request, or its description of a prompt or a pool, is wrong.
	ErrBadRequest = errors.New("the server finds the request wrong")
	// ErrNoPool says that the connection has no pool, or the server none of this name.
	ErrNoPool = errors.New("no pool")
	// ErrPoolDiffers says that the server has the described pool otherwise: see WithPool.
	// RefusedError.Differences has each field with both values.
	ErrPoolDiffers = errors.New("the pool differs")
	// ErrNotAllowed says that the client may not make this request: neither its token or client
	// certificate nor the listener of the server allows it.
	ErrNotAllowed = errors.New("not allowed")
	// ErrNotAuthenticated says that the server has refused the client's token.
	ErrNotAuthenticated = errors.New("not authenticated")
	// ErrUnsupported says that the pool or the store cannot do it.
	ErrUnsupported = errors.New("not supported")
	// ErrTooLarge says that the request exceeds a limit of the server.
	ErrTooLarge = errors.New("too large")
	// ErrBusy says that the server held as many requests as it may. The client has tried again
	// until the call's time was up.
	ErrBusy = errors.New("the server is busy")
	// ErrStoreFailed says that the store behind the server has failed or did not answer in time.
	ErrStoreFailed = errors.New("the store has failed")
)

// refusals are the errors of the codes.
var refusals = map[string]error{
	api.RefusalUnknownRequest:   ErrUnknownRequest,
	api.RefusalBadRequest:       ErrBadRequest,
	api.RefusalNoPool:           ErrNoPool,
	api.RefusalPoolDiffers:      ErrPoolDiffers,
	api.RefusalNotAllowed:       ErrNotAllowed,
	api.RefusalNotAuthenticated: ErrNotAuthenticated,
	api.RefusalUnsupported:      ErrUnsupported,
	api.RefusalTooLarge:         ErrTooLarge,
	api.RefusalBusy:             ErrBusy,
	api.RefusalStoreFailed:      ErrStoreFailed,
	api.RefusalPartlyDone:       api.ErrPartlyDone, // of a reset
}

// RefusedError is the ErrRefused of a server. Its code is empty if the server has told none.
type RefusedError struct {
	api.Refusal
	Text string // of the server; may be empty
}

func (e *RefusedError) Error() string {
	switch {
	case e.Text != "":
		return ErrRefused.Error() + ": " + e.Text
	case e.Refusal.Refusal != "":
		return ErrRefused.Error() + ": " + e.Refusal.Refusal
	}
	return ErrRefused.Error()
}

// Is reports whether target is ErrRefused or the error of the code.
func (e *RefusedError) Is(target error) bool {
	return target == ErrRefused || target == refusals[e.Refusal.Refusal]
}

// BackoffError is in the chain of an error of a call if a server could not be reached and the call did not wait: find it
// with errors.As. Its text is that of its cause, the same for each call until the next attempt.
type BackoffError struct {
	RetryIn time.Duration // from the call's end on until the next attempt, in the background
	Err     error         // of the last attempt
}

func (e *BackoffError) Error() string { return e.Err.Error() }

// Unwrap returns the error of the last attempt.
func (e *BackoffError) Unwrap() error { return e.Err }

// withoutSource removes the client's own port from an error of the network: equal failures have equal texts.
func withoutSource(err error) error {
	if of, ok := err.(*net.OpError); ok && of.Addr != nil { //nolint:errorlint // what wraps one cannot be changed
		stable := *of
		stable.Source = nil
		return &stable
	}
	return err
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

var (
	// errClosed is the cause of every error after Close.
	errClosed = fmt.Errorf("client is closed: %w", net.ErrClosed)
	// errHit is the ErrReply of a lookup whose reply is well framed and no hit. The connection
	// can still be used.
	errHit = fmt.Errorf("%w: not a hit", ErrReply)
	// errSilent is the cause if a connection was closed because the server did not answer.
	errSilent = errors.New("no reply")
	// errExpired is the error of a lookup of an AsyncClient that was not sent in time.
	errExpired = fmt.Errorf("%w: %w", ErrNoAnswer, os.ErrDeadlineExceeded)
)
