package cli

import (
	"errors"
	"fmt"
	"net"
	"os"
)

// Exit codes of all commands.
const (
	ExitDone   = 0
	ExitFailed = 1 // an answer was bad or refused, something was found wrong, or interrupted
	ExitUsage  = 2 // wrong usage, configuration or input
	ExitLost   = 3 // no connection, or it was lost
)

// Classes of errors. WithClass and Usagef make an error one of a class. api.ErrConfig is the class of
// a wrong configuration or input file, and exits with ExitUsage.
var (
	// ErrUsage is wrong usage of the command line, for which --help helps; exits with ExitUsage.
	ErrUsage = errors.New("wrong usage")
	// ErrReported is an error that the command has printed on standard output itself, be it within
	// a report: with --json no line is printed for it.
	ErrReported = errors.New("reported")
)

// SystemCause returns what the system says of a connection or an address, without what was tried and with whom.
func SystemCause(err error) error {
	if failed, ok := errors.AsType[*net.OpError](err); ok {
		err = failed.Err
	}
	if call, ok := errors.AsType[*os.SyscallError](err); ok {
		err = call.Err
	}
	return err
}

// errInterrupted is the error of a command that failed after its context had ended.
var errInterrupted = errors.New("interrupted")

// classified adds a class to an error without changing its text.
type classified struct {
	error
	class error
}

// Unwrap returns both the error and its class.
func (c classified) Unwrap() []error { return []error{c.error, c.class} }

// WithClass returns err with its text, which errors.Is also finds to be class. It returns nil if
// err is nil.
func WithClass(err, class error) error {
	if err == nil {
		return nil
	}
	return classified{err, class}
}

// Usagef returns an error of the class ErrUsage.
func Usagef(format string, args ...any) error {
	return classified{fmt.Errorf(format, args...), ErrUsage}
}
