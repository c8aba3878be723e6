package mooncake

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"

	"github.com/hitline/hitline/backend"
)

var (
	// errForm means that a master takes none of the Forms.
	errForm = mismatchError("takes no form of BatchExistKey known here, which are those of Mooncake v0.3.5 on")
	// errNotMaster means that an address is not the RPC port of a master.
	errNotMaster = mismatchError("is no RPC port of a Mooncake master")
)

// mismatchError is a text that wraps backend.ErrMismatch without repeating its text.
type mismatchError string

func (m mismatchError) Error() string { return string(m) }

func (m mismatchError) Unwrap() error { return backend.ErrMismatch }

var (
	// errClosed is the error of calls that Close ends, and of later ones.
	errClosed = fmt.Errorf("mooncake: %w: the client is closed: %w", backend.ErrUnavailable, net.ErrClosed)
	// errHTTP is the error of an address that is a master's admin port.
	errHTTP = fmt.Errorf("%w: it speaks HTTP, as the admin port does (9003 by default; RPC is on 50051)", errNotMaster)
)

// rpcError is an error reply of the RPC layer.
type rpcError struct {
	code byte
	user uint16 // the function's own code, if code is codeUser
	text string
}

func (e *rpcError) Error() string {
	what := ""
	switch e.code {
	case codeTimedOut:
		what = " (timed out)"
	case codeArguments:
		what = " (other arguments expected)"
	case codeException:
		what = " (exception)"
	case codeNotRegister:
		what = " (no such function)"
	case codeTooLarge:
		what = " (message too large)"
	case codeUser:
		what = fmt.Sprintf(" (%d)", e.user)
	}
	if e.text != "" {
		what += ": " + e.text
	}
	return fmt.Sprintf("it answers RPC error %d%s", e.code, what)
}

func (e *rpcError) Unwrap() error { return backend.ErrUnavailable }

// notServing returns the error of a store that answers with code instead of results.
func notServing(code int) error {
	name, class := "", backend.ErrUnavailable
	switch code {
	case storeInvalidParams:
		name = ", invalid parameters: is the tenant one of this store's?"
	case storeNoTenant:
		name, class = ", the tenant is not registered", fmt.Errorf("%w: %w", backend.ErrMismatch, backend.ErrUnavailable)
	case storeNotServing, storeNotInMode:
		name = ", not serving now"
	}
	return fmt.Errorf("%w: it answers store error %d%s", class, code, name)
}

// explainForeign explains first bytes that no master sends. A TLS alert begins with the same
// byte as a response.
func explainForeign(b []byte) error {
	switch {
	case bytes.HasPrefix(b, []byte("HTTP")):
		return errHTTP
	case b[0] == magic && b[1] == 3:
		return fmt.Errorf("%w: it speaks TLS, which the master's RPC does not", errNotMaster)
	}
	return fmt.Errorf("%w: %w: it begins with %q", errNotMaster, backend.ErrReply, b)
}

// explain turns a network error into one line. answered reports whether the master has already
// answered on the connection.
func explain(err error, answered bool) error {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("nothing listens there: %w", syscall.ECONNREFUSED)
	case closedByPeer(err):
		if answered {
			return fmt.Errorf("it closed the connection: %w", err)
		}
		return fmt.Errorf("%w: it closes the connection where a master answers (is it the HTTP admin port, or one with TLS?): %w", errNotMaster, err)
	}
	return err
}

// isTimeout reports whether err is a timeout.
func isTimeout(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded)
}

// gaveUp reports whether a request failed because its caller no longer waited.
func gaveUp(err error) bool { return isTimeout(err) || errors.Is(err, context.Canceled) }

// closedByPeer reports whether a connection failed because the peer closed it.
func closedByPeer(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// wrapUnavailable adds the address, and backend.ErrUnavailable if err is neither that nor
// backend.ErrReply.
func wrapUnavailable(addr string, err error) error {
	if errors.Is(err, backend.ErrUnavailable) || errors.Is(err, backend.ErrReply) {
		return fmt.Errorf("mooncake %s: %w", addr, err)
	}
	return fmt.Errorf("mooncake %s: %w: %w", addr, backend.ErrUnavailable, err)
}

// joinedErrors joins errors in one line; errors.Join writes one line for each.
type joinedErrors []error

func (j joinedErrors) Error() string {
	texts := make([]string, len(j))
	for i, err := range j {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}

func (j joinedErrors) Unwrap() []error { return j }
