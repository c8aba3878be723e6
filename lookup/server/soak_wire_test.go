package server_test

import (
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

// soakParser takes a stream apart.
type soakParser struct{ buf []byte }

// next returns the first whole message, and false if there is none yet.
func (p *soakParser) next() (m soakMessage, ok bool, err error) {
	at := 0
	for {
		b := p.buf[at:]
		if len(b) == 0 {
			return m, false, nil
		}
		flags := b[0]
		if flags&^(soakMore|soakLong|soakCommand) != 0 {
			return m, false, fmt.Errorf("flags %02x in a reply", flags)
		}
		head, size := 2, uint64(0)
		if flags&soakLong != 0 {
			head = 9
		}
		if len(b) < head {
			return m, false, nil
		}
		if head == 2 {
			size = uint64(b[1])
		} else if size = binary.BigEndian.Uint64(b[1:]); size > 1<<24 {
			return m, false, fmt.Errorf("a frame of %d bytes in a reply", size)
		}
		if uint64(len(b)-head) < size {
			return m, false, nil
		}
		m.frames = append(m.frames, bytes.Clone(b[head:head+int(size)]))
		at += head + int(size)
		if flags&soakCommand != 0 {
			if len(m.frames) > 1 || flags&soakMore != 0 {
				return m, false, errors.New("a command inside a message")
			}
			m.command = true
		}
		if flags&soakMore == 0 {
			p.buf = p.buf[at:]
			return m, true, nil
		}
	}
}

// soakConn is a connection of a worker.
type soakConn struct {
	net.Conn
	soakParser
	incarnation int    // of the server that it leads to, if to any
	dialect     string // raw, REQ or DEALER
	proven      bool   // something has come back on it
	chunk       []byte
}

// read takes messages until there are want of them, or an error.
func (c *soakConn) read(want int) (got []soakMessage, err error) {
	for {
		for len(got) < want {
			m, ok, err := c.next()
			if err != nil {
				return got, &soakWrong{err.Error()}
			}
			if !ok {
				break
			}
			got, c.proven = append(got, m), true
		}
		if len(got) == want {
			return got, nil
		}
		n, err := c.Read(c.chunk)
		c.buf = append(c.buf, c.chunk[:n]...)
		if n == 0 && err != nil {
			return got, err
		}
	}
}

// readEnd reads until the server closes, and returns the messages before.
func (c *soakConn) readEnd() (got []soakMessage, err error) {
	got, err = c.read(-1)
	for {
		m, ok, bad := c.next()
		if bad != nil {
			return got, &soakWrong{bad.Error()}
		}
		if !ok {
			break
		}
		got = append(got, m)
	}
	if errors.Is(err, io.EOF) {
		err = nil
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
	if _, err := io.ReadFull(c, theirs); err != nil {
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
