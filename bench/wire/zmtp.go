package wire

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/hitline/hitline/bench/measure"
)

// ZMTP 3, as far as a client under the NULL or the PLAIN mechanism needs it.
const (
	greetingLen  = 64
	mechanismLen = 20
	signature    = "\xff\x00\x00\x00\x00\x00\x00\x00\x00\x7f\x03\x01" // and the version
	readyName    = "\x05READY"
	socketType   = "\x0bSocket-Type\x00\x00\x00"
	identity     = "\x08Identity\x00\x00\x00\x00"
)

// Flags of a frame that is a command.
const (
	shortCommand = 4
	longCommand  = 6 // its length has 8 bytes
)

// handshake makes a ZMTP connection of conn, as a REQ socket or, for more requests
// under way than one, a DEALER. A token goes by the PLAIN mechanism.
func handshake(conn io.ReadWriter, pipelined bool, token string) error {
	socket := "REQ"
	if pipelined {
		socket = "DEALER"
	}
	metadata := socketType + string(rune(len(socket))) + socket + identity
	if token == "" {
		if err := exchange(conn, appendCommand(greeting("NULL"), readyName+metadata), "NULL"); err != nil {
			return err
		}
		return expectCommand(conn, readyName)
	}
	if err := exchange(conn, greeting("PLAIN"), "PLAIN"); err != nil {
		return err
	}
	hello := "\x05HELLO\x00" + string([]byte{byte(len(token))}) + token
	for _, step := range []struct{ command, answer string }{{hello, "\x07WELCOME"}, {"\x08INITIATE" + metadata, readyName}} {
		if _, err := conn.Write(appendCommand(nil, step.command)); err != nil {
			return Lost(err)
		}
		if err := expectCommand(conn, step.answer); err != nil {
			return err
		}
	}
	return nil
}

// greeting returns the greeting of a client.
func greeting(mechanism string) []byte {
	return append([]byte(signature+mechanism), make([]byte, greetingLen-len(signature)-len(mechanism))...)
}

// appendCommand appends a command as a frame.
func appendCommand(dst []byte, command string) []byte {
	if len(command) < 256 {
		return append(append(dst, shortCommand, byte(len(command))), command...)
	}
	return append(binary.BigEndian.AppendUint64(append(dst, longCommand), uint64(len(command))), command...)
}

// exchange writes a greeting, and what follows it, and reads that of the server.
func exchange(conn io.ReadWriter, ours []byte, mechanism string) error {
	if _, err := conn.Write(ours); err != nil {
		return Lost(err)
	}
	theirs := make([]byte, greetingLen)
	if _, err := io.ReadFull(conn, theirs); err != nil {
		return Lost(err)
	}
	want := greeting(mechanism)[len(signature):][:mechanismLen]
	if theirs[0] != 0xFF || theirs[9] != 0x7F || theirs[10] < 3 || !bytes.Equal(theirs[len(signature):][:mechanismLen], want) {
		return fmt.Errorf("%w: no ZMTP greeting under the %s mechanism, but %x", measure.ErrAnswer, mechanism, theirs)
	}
	return nil
}

// expectCommand reads a command and returns an error unless it begins with a name.
func expectCommand(conn io.Reader, name string) error {
	header := make([]byte, 2)
	if _, err := io.ReadFull(conn, header); err != nil {
		return Lost(err)
	}
	if header[0] != shortCommand {
		return fmt.Errorf("%w: no %s, but a frame of flags %x", measure.ErrAnswer, name[1:], header[0])
	}
	command := make([]byte, header[1])
	if _, err := io.ReadFull(conn, command); err != nil {
		return Lost(err)
	}
	if !bytes.HasPrefix(command, []byte(name)) {
		return fmt.Errorf("%w: no %s, but %q", measure.ErrAnswer, name[1:], command)
	}
	return nil
}
