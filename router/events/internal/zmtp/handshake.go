package zmtp

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hitline/hitline/netproto"
)

// socket is what a handshake says of one of our socket types.
type socket struct {
	properties string   // of our READY
	peers      []string // the socket types that talk to ours
}

var sockets = map[string]socket{
	SUB: {"\x0bSocket-Type\x00\x00\x00\x03SUB", []string{"PUB", "XPUB"}},
	// A ROUTER chooses an identity for a DEALER that has none.
	DEALER: {"\x0bSocket-Type\x00\x00\x00\x06DEALER\x08Identity\x00\x00\x00\x00", []string{"ROUTER", "REP", "DEALER"}},
}

// handshake sends and checks greetings and READYs, all within Timeout.
func (c *Conn) handshake() error {
	socket, ok := sockets[c.cfg.SocketType]
	if !ok {
		return fmt.Errorf("no socket type %q", c.cfg.SocketType)
	}
	c.in.begun = true
	c.in.beginStep(time.Now())
	if err := c.write([]byte(netproto.Greeting)); err != nil {
		return err
	}
	minor, err := c.readGreeting()
	if err != nil {
		return err
	}
	if err := c.write(netproto.AppendCommand(nil, netproto.CommandReady, socket.properties)); err != nil {
		return err
	}
	if err := c.readReady(socket.peers); err != nil {
		return err
	}
	c.minor = minor
	return nil
}

// readGreeting reads and checks the peer's greeting, each byte as soon as it is there: an older
// peer's is shorter. It returns the minor version of the 3.x to speak.
func (c *Conn) readGreeting() (minor byte, err error) {
	var g []byte
	for n := 1; n <= netproto.GreetingLen; n++ {
		if g, err = c.buf.Peek(n); err != nil {
			return 0, err
		}
		switch _, err = netproto.CheckGreeting(g); {
		case errors.Is(err, netproto.ErrVersion):
			return 0, protocolError("the peer speaks a ZMTP older than 3.0: it begins with %s", show(g))
		case err != nil:
			return 0, protocolError("the peer is not a ZeroMQ socket: it begins with %s", show(g))
		}
	}
	minor, mechanism := netproto.ParseGreeting(g)
	if mechanism != "NULL" {
		return 0, protocolError("the peer asks for the mechanism %q; only NULL is supported", mechanism)
	}
	_, err = c.buf.Discard(len(g))
	return minor, err
}

// readReady reads the peer's READY. Nothing else may come before it.
func (c *Conn) readReady(peers []string) error {
	h, err := c.readHeader()
	if err != nil {
		return err
	}
	if h.Flags&^netproto.FlagLong != netproto.FlagCommand {
		return protocolError("a frame of flags %#x instead of a READY", h.Flags)
	}
	name, data, err := c.readCommand(h)
	if err != nil {
		return err
	}
	if string(name) != netproto.CommandReady {
		return protocolError("the command %s instead of a READY", show(name))
	}
	refused, err := netproto.CheckProperties(data, peers...)
	if errors.Is(err, netproto.ErrSocketType) {
		// RFC 37 demands this answer. Whether it arrives does not matter.
		_ = c.write(netproto.AppendCommand(nil, netproto.CommandError, "\x13Invalid-socket-type"))
		return protocolError("the peer's socket has the wrong type: %s; a %s socket needs a %s",
			strings.Trim(show(refused), `"`), c.cfg.SocketType, strings.Join(peers, " or "))
	}
	if err != nil {
		return protocolError("the properties of the peer's READY are malformed: %s", show(data))
	}
	return nil
}

// maxShown bounds the bytes of the peer that an error shows.
const maxShown = 64

// show quotes the first bytes of a peer's text.
func show(b []byte) string {
	if len(b) > maxShown {
		return fmt.Sprintf("%q…", b[:maxShown])
	}
	return fmt.Sprintf("%q", b)
}
