package zmtp

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Offsets in the greeting.
const (
	greetingBytes  = 64
	signatureEnd   = 9 // the last byte of the signature
	versionMajor   = 10
	versionMinor   = 11
	mechanismBegin = 12
	mechanismEnd   = 32
)

// major is the version of ZMTP that has these frames and commands.
const major = 3

// ourGreeting says ZMTP 3.1 and NULL.
var ourGreeting = func() []byte {
	g := make([]byte, greetingBytes)
	g[0], g[signatureEnd], g[versionMajor], g[versionMinor] = 0xFF, 0x7F, major, 1
	copy(g[mechanismBegin:], "NULL")
	return g
}()

// peersOf are the socket types that talk to ours.
var peersOf = map[string][]string{
	SUB:    {"PUB", "XPUB"},
	DEALER: {"ROUTER", "REP", "DEALER"},
}

// propertySocketType is the only property of a READY that is read.
const propertySocketType = "Socket-Type"

// maxShown bounds the bytes of the peer that an error shows.
const maxShown = 64

// handshake sends and checks greetings and READYs, all within Timeout.
func (c *Conn) handshake() error {
	peers, ok := peersOf[c.cfg.SocketType]
	if !ok {
		return fmt.Errorf("events: zmtp: no socket type %q", c.cfg.SocketType)
	}
	deadline := time.Now().Add(c.cfg.Timeout)
	if err := c.write(func(b []byte) []byte { return append(b, ourGreeting...) }); err != nil {
		return err
	}
	if err := c.readGreeting(deadline); err != nil {
		return err
	}
	if err := c.write(c.appendReady); err != nil {
		return err
	}
	properties, err := c.readReady(deadline)
	if err != nil {
		return err
	}
	socketType, err := socketTypeOf(properties)
	if err != nil {
		return err
	}
	if !slices.Contains(peers, socketType) {
		// RFC 37 demands this answer. Whether it arrives does not matter.
		_ = c.write(func(b []byte) []byte { return appendCommand(b, commandError, "\x13Invalid-socket-type") })
		return fmt.Errorf("%w: %s; a %s socket needs a %s", ErrSocketType, show([]byte(socketType)),
			c.cfg.SocketType, strings.Join(peers, " or "))
	}
	return nil
}

// readGreeting reads and checks the peer's greeting, each part as soon as it is there: an
// older peer's is shorter.
func (c *Conn) readGreeting(deadline time.Time) error {
	for {
		g := c.in.unread()
		switch {
		case len(g) > 0 && g[0] != 0xFF:
			return fmt.Errorf("%w: its first bytes are %s", ErrGreeting, show(g))
		case len(g) > signatureEnd && g[signatureEnd] == 0:
			return fmt.Errorf("%w: version 1; version 3 is needed", ErrVersion)
		case len(g) > signatureEnd && g[signatureEnd] != 0x7F:
			return fmt.Errorf("%w: its first bytes are %s", ErrGreeting, show(g))
		case len(g) > versionMajor && g[versionMajor] < major:
			return fmt.Errorf("%w: version %d; version 3 is needed", ErrVersion, min(g[versionMajor], 1)+1)
		case len(g) >= greetingBytes:
			mechanism, _, _ := bytes.Cut(g[mechanismBegin:mechanismEnd], []byte{0})
			if string(mechanism) != "NULL" {
				return fmt.Errorf("%w: %s", ErrMechanism, show(mechanism))
			}
			c.minor = g[versionMinor]
			if g[versionMajor] > major {
				c.minor = 1 // it must speak our version with us
			}
			c.in.skip(greetingBytes)
			return nil
		}
		if err := c.readBefore(deadline, "its greeting"); err != nil {
			return err
		}
	}
}

// readReady reads the first command and returns the properties of a READY.
func (c *Conn) readReady(deadline time.Time) ([]byte, error) {
	for {
		h, ok := parseHeader(c.in.unread())
		switch {
		case !ok:
		case h.flags&flagCommand == 0 || h.flags&^(flagCommand|flagLong) != 0:
			return nil, fmt.Errorf("%w: a frame of flags %#x instead of a READY", ErrHandshake, h.flags)
		case h.size > maxCommand:
			return nil, fmt.Errorf("%w: a command of %d bytes; at most %d are accepted", ErrHandshake, h.size, maxCommand)
		case len(c.in.unread()) >= h.bytes+int(h.size):
			body := c.in.unread()[h.bytes : h.bytes+int(h.size)]
			c.in.skip(h.bytes + int(h.size))
			name, data, ok := splitCommand(body)
			switch {
			case ok && string(name) == commandReady:
				return data, nil
			case ok && string(name) == commandError:
				return nil, refusal(data)
			}
			return nil, fmt.Errorf("%w: %s instead of a READY", ErrHandshake, show(body))
		}
		if err := c.readBefore(deadline, "its READY"); err != nil {
			return nil, err
		}
	}
}

// readBefore reads more of the handshake, until deadline.
func (c *Conn) readBefore(deadline time.Time, what string) error {
	err := c.conn.SetReadDeadline(deadline)
	if err == nil {
		err = c.in.read(c.conn, 1)
	}
	switch {
	case err == nil:
		return nil
	case isTimeout(err):
		return fmt.Errorf("%w: %v for %s", ErrTimeout, c.cfg.Timeout, what)
	}
	return c.ioError("reading "+what, err)
}

func (c *Conn) appendReady(b []byte) []byte {
	p := appendProperty(nil, propertySocketType, c.cfg.SocketType)
	if c.cfg.SocketType == DEALER {
		p = appendProperty(p, "Identity", "") // a ROUTER then chooses one
	}
	return appendCommand(b, commandReady, p)
}

func appendProperty(dst []byte, name, value string) []byte {
	dst = append(append(dst, byte(len(name))), name...)
	return append(binary.BigEndian.AppendUint32(dst, uint32(len(value))), value...)
}

// socketTypeOf returns the socket type among the properties of a READY: length of the name
// (1 byte), name, length of the value (4 bytes), value.
func socketTypeOf(p []byte) (socketType string, err error) {
	for len(p) > 0 {
		n := int(p[0])
		if p = p[1:]; n == 0 || len(p) < n+4 {
			return "", fmt.Errorf("%w: a truncated property", ErrHandshake)
		}
		name, size := p[:n], binary.BigEndian.Uint32(p[n:])
		if p = p[n+4:]; uint64(size) > uint64(len(p)) {
			return "", fmt.Errorf("%w: a truncated property", ErrHandshake)
		}
		if strings.EqualFold(string(name), propertySocketType) {
			socketType = string(p[:size])
		}
		p = p[size:]
	}
	return socketType, nil
}

// refusal is the error for a command ERROR; data is the length of a reason and the reason.
func refusal(data []byte) error {
	if len(data) > 0 {
		data = data[1:]
	}
	return fmt.Errorf("%w: %s", ErrRefused, show(data))
}

// show quotes the first bytes of a peer's text.
func show(b []byte) string {
	if len(b) > maxShown {
		return fmt.Sprintf("%q…", b[:maxShown])
	}
	return fmt.Sprintf("%q", b)
}
