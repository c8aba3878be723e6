package load

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
)

// ZMTP, as far as a client under the NULL mechanism needs it.
const (
	greetingLen = 64
	mechanism   = "NULL\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	greeting    = "\xff\x00\x00\x00\x00\x00\x00\x00\x00\x7f\x03\x01" + mechanism
	readyName   = "\x05READY"
	socketType  = "\x0bSocket-Type\x00\x00\x00"
	identity    = "\x08Identity\x00\x00\x00\x00"
)

// delimiter is the empty frame in front of a request of a ZMTP connection, and of
// its reply.
var delimiter = []byte{1, 0}

// handshake makes a ZMTP connection of conn, as a REQ socket or, for more requests
// under way than one, a DEALER.
func handshake(conn net.Conn, pipelined bool) error {
	socket := "REQ"
	if pipelined {
		socket = "DEALER"
	}
	ready := readyName + socketType + string(rune(len(socket))) + socket + identity
	hello := append([]byte(greeting), make([]byte, greetingLen-len(greeting))...)
	hello = append(hello, 4, byte(len(ready)))
	if _, err := conn.Write(append(hello, ready...)); err != nil {
		return lost(err)
	}
	theirs := make([]byte, greetingLen+2)
	if _, err := io.ReadFull(conn, theirs); err != nil {
		return lost(err)
	}
	if theirs[0] != 0xFF || theirs[9] != 0x7F || !bytes.Equal(theirs[12:32], []byte(mechanism)) || theirs[greetingLen] != 4 {
		return fmt.Errorf("%w: no ZMTP greeting under the NULL mechanism, but %x", ErrAnswer, theirs)
	}
	command := make([]byte, theirs[greetingLen+1])
	if _, err := io.ReadFull(conn, command); err != nil {
		return lost(err)
	}
	if !bytes.HasPrefix(command, []byte(readyName)) {
		return fmt.Errorf("%w: no READY, but %q", ErrAnswer, command)
	}
	return nil
}

// lost words the end of a connection.
func lost(err error) error {
	switch {
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		err = errors.New("closed by the server")
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = fmt.Errorf("no answer in time: %w", err)
	}
	return fmt.Errorf("%w: %w", ErrLost, err)
}
