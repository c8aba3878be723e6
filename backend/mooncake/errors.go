package mooncake

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"github.com/hitline/hitline/backend"
)

var (
	// ErrConfig refuses a Config.
	ErrConfig = errors.New("mooncake: bad configuration")
	// ErrForm says that a master takes the arguments of BatchExistKey in no form
	// known here.
	ErrForm = mismatch("takes no form of BatchExistKey known here, which are those of Mooncake v0.3.5 on")
	// ErrNotMaster says that an address leads to something that is no master's RPC.
	ErrNotMaster = mismatch("is no RPC port of a Mooncake master")
)

// mismatch is an error that is a backend.ErrMismatch and does not say so.
type mismatch string

func (m mismatch) Error() string { return string(m) }

// Unwrap makes it one.
func (m mismatch) Unwrap() error { return backend.ErrMismatch }

var (
	// errClosed is said of a call after Close.
	errClosed = fmt.Errorf("mooncake: %w: the client is closed: %w", backend.ErrUnavailable, net.ErrClosed)
	// errHTTP is said of the wrong one of a master's two ports.
	errHTTP = fmt.Errorf("%w: it speaks HTTP, as the admin port does (9003 by default; RPC is on 50051)", ErrNotMaster)
)

// rpcError is an error reply of the RPC layer.
type rpcError struct {
	code byte
	user uint16 // with codeUser
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

// Unwrap makes it a store that does not serve.
func (e *rpcError) Unwrap() error { return backend.ErrUnavailable }

// notServing is for a store that answers with its own error in place of all results.
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

// foreign explains the first bytes of a reply that is not of this protocol. A TLS
// alert begins with the byte that is the magic.
func foreign(b []byte) error {
	switch {
	case bytes.HasPrefix(b, []byte("HTTP")):
		return errHTTP
	case b[0] == magic && b[1] == 3:
		return fmt.Errorf("%w: it speaks TLS, which the master's RPC does not", ErrNotMaster)
	}
	return fmt.Errorf("%w: %w: it begins with %q", ErrNotMaster, backend.ErrReply, b)
}

// explain makes one line of a failure to reach a master or to talk with it. begun
// tells whether the connection has answered before.
func explain(err error, begun bool) error {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("nothing listens there: %w", syscall.ECONNREFUSED)
	case closedByPeer(err):
		if begun {
			return fmt.Errorf("it closed the connection: %w", err)
		}
		return fmt.Errorf("%w: it closes the connection where a master answers (is it the HTTP admin port, or one with TLS?): %w", ErrNotMaster, err)
	}
	return err
}

// timedOut tells whether err is that the time is over.
func timedOut(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded)
}

// unavailable types an error, which then also says whose it is.
func unavailable(addr string, err error) error {
	if errors.Is(err, backend.ErrUnavailable) || errors.Is(err, backend.ErrReply) {
		return fmt.Errorf("mooncake %s: %w", addr, err)
	}
	return fmt.Errorf("mooncake %s: %w: %w", addr, backend.ErrUnavailable, err)
}
