// Package wire is the socket layer of the measurements: sockets by raw system calls, the framing of
// the dialects that servers speak, and the requests around a measurement, such as handshake, auth
// and ping. Sockets work on Linux only; elsewhere their functions fail with [ErrUnsupported]. No
// promise: it is internal to this module, and its API may change in any release.
//
// A connection begins as a [Control] on a net.Conn, which makes the handshake and sends the
// token. [Control.Socket] and [Control.Conn] then take its socket over for what is measured.
package wire

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/hitline/hitline/bench/measure"
)

// ErrUnsupported is returned where the system is not Linux.
var ErrUnsupported = fmt.Errorf("%w: it is measured on Linux only", measure.ErrOptions)

// ErrAgain says that nothing could be read or written for now, of a socket that does not
// wait for its whole bound.
var ErrAgain = errors.New("nothing for now")

// Lost marks an error of a connection as [measure.ErrLost], unless it is one already, is
// nil, or is [measure.ErrAnswer].
func Lost(err error) error {
	switch {
	case err == nil || errors.Is(err, measure.ErrAnswer) || errors.Is(err, measure.ErrLost):
		return err
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		err = errClosed
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = errLate
	}
	return fmt.Errorf("%w: %w", measure.ErrLost, err)
}

var (
	errClosed = errors.New("closed by the server")
	errLate   = errors.New("no answer in time")
)
