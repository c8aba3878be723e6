package server_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"time"
)

// The soak test has a codec of its own, so that a mistake in netproto is not made
// twice and found by nobody.

// soakMessage is what came back: a message, or a ZMTP command.
type soakMessage struct {
	command bool
	frames  [][]byte
}

func (m soakMessage) String() string {
	var b strings.Builder
	if m.command {
		b.WriteString("command ")
	}
	for i, f := range m.frames {
		if i > 0 {
			b.WriteString(" | ")
		}
		if len(f) > 48 {
			fmt.Fprintf(&b, "%x… (%d bytes)", f[:48], len(f))
		} else {
			fmt.Fprintf(&b, "%x", f)
		}
	}
	return b.String()
}

const (
	soakMore, soakLong, soakCommand = 1, 2, 4
)

// soakFrame appends a frame; long takes the long form where the short would do.
func soakFrame(dst []byte, flags byte, body []byte, long bool) []byte {
	if len(body) < 256 && !long {
		dst = append(dst, flags, byte(len(body)))
	} else {
		dst = binary.BigEndian.AppendUint64(append(dst, flags|soakLong), uint64(len(body)))
	}
	return append(dst, body...)
}

// soakEncode encodes a message, now and then with long forms.
func soakEncode(rng *rand.Rand, frames ...[]byte) []byte {
	size := 0
	for _, f := range frames {
		size += 9 + len(f)
	}
	b := make([]byte, 0, size)
	for i, f := range frames {
		flags := byte(soakMore)
		if i == len(frames)-1 {
			flags = 0
		}
		b = soakFrame(b, flags, f, rng.IntN(16) == 0)
	}
	return b
}

// soakConn is a connection of a worker.
type soakConn struct {
	net.Conn
	in          *bufio.Reader
	incarnation int    // of the server that it leads to, if to any
	dialect     string // raw, REQ or DEALER
	proven      bool   // something has come back on it
}

func newSoakConn(conn net.Conn) *soakConn {
	return &soakConn{Conn: conn, in: bufio.NewReaderSize(conn, 32<<10)}
}

// readMessage reads a message or a command.
func (c *soakConn) readMessage() (m soakMessage, err error) {
	for flags := byte(soakMore); flags&soakMore != 0; {
		if flags, err = c.in.ReadByte(); err != nil {
			return m, err
		}
		if flags&^(soakMore|soakLong|soakCommand) != 0 {
			return m, &soakWrong{fmt.Sprintf("flags %02x in a reply", flags)}
		}
		if m.command = flags&soakCommand != 0; m.command && (len(m.frames) > 0 || flags&soakMore != 0) {
			return m, &soakWrong{"a command inside a message"}
		}
		header := make([]byte, 8)
		size := header[7:]
		if flags&soakLong != 0 {
			size = header
		}
		if _, err := io.ReadFull(c.in, size); err != nil {
			return m, err
		}
		n := binary.BigEndian.Uint64(header)
		if n > 1<<24 {
			return m, &soakWrong{fmt.Sprintf("a frame of %d bytes in a reply", n)}
		}
		frame := make([]byte, n)
		if _, err := io.ReadFull(c.in, frame); err != nil {
			return m, err
		}
		m.frames = append(m.frames, frame)
	}
	return m, nil
}

// read reads messages until there are want of them, or an error; -1: up to an error.
func (c *soakConn) read(want int) (got []soakMessage, err error) {
	for len(got) != want {
		m, err := c.readMessage()
		if err != nil {
			return got, err
		}
		got, c.proven = append(got, m), true
	}
	return got, nil
}

// readEnd reads until the server closes, and returns the messages before.
func (c *soakConn) readEnd() (got []soakMessage, err error) {
	all, err := io.ReadAll(c.in)
	c.in = bufio.NewReader(bytes.NewReader(all))
	got, bad := c.read(-1)
	var wrong *soakWrong
	if errors.As(bad, &wrong) {
		return got, wrong
	}
	return got, err
}

// soakWrong is a reply that no server may give, whatever happens to it.
type soakWrong struct{ text string }

func (e *soakWrong) Error() string { return "wrong: " + e.text }

// shake makes a ZMTP handshake.
func (c *soakConn) shake(rng *rand.Rand) error {
	greeting := append([]byte("\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03"), byte(rng.IntN(2)))
	greeting = append(append(greeting, "NULL"...), make([]byte, 48)...)
	ready := []byte("\x05READY\x0bSocket-Type\x00\x00\x00")
	ready = append(append(ready, byte(len(c.dialect))), c.dialect...)
	hello := soakFrame(greeting, soakCommand, append(ready, "\x08Identity\x00\x00\x00\x00"...), false)
	cut := rng.IntN(len(hello) + 1)
	for _, part := range [][]byte{hello[:cut], hello[cut:]} {
		if _, err := c.Write(part); err != nil {
			return err
		}
		if rng.IntN(4) == 0 {
			time.Sleep(time.Millisecond)
		}
	}
	theirs := make([]byte, 64)
	if _, err := io.ReadFull(c.in, theirs); err != nil {
		return err
	}
	if theirs[0] != 0xff || theirs[9] != 0x7f || theirs[10] != 3 || string(theirs[12:17]) != "NULL\x00" {
		return &soakWrong{fmt.Sprintf("greeting %x", theirs)}
	}
	got, err := c.read(1)
	if err != nil {
		return err
	}
	if !got[0].command || !bytes.HasPrefix(got[0].frames[0], []byte("\x05READY")) || !bytes.HasSuffix(got[0].frames[0], []byte("REP")) {
		return &soakWrong{"instead of READY: " + got[0].String()}
	}
	return nil
}
