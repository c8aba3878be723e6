package zmtp

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/hitline/hitline/netproto"
)

const (
	// maxFrames bounds the frames of a message. A batch of KV events has 3, and an answer of a
	// replay socket 4.
	maxFrames = 16
	// maxCommandsInside bounds the commands between the frames of one message. The RFC does not
	// allow them there, but libzmq sends a PING or PONG when it is due.
	maxCommandsInside = 64
	// maxIdle bounds what a peer may send in a second that is no progress. libzmq sends a PING or a PONG in a heartbeat.
	maxIdle = 1000
)

// idleRate counts what a peer sends in a second that is no progress.
type idleRate struct {
	began time.Time // of the second
	n     int
}

// CountIdle counts a command, or a message that is of no use to the caller of Receive. It fails with an ErrProtocol once
// there are more than maxIdle in a second: they would take a processor for nothing. The caller ends the connection then.
func (c *Conn) CountIdle() error {
	if now := time.Now(); now.Sub(c.idle.began) >= time.Second {
		c.idle = idleRate{began: now}
	}
	if c.idle.n++; c.idle.n > maxIdle {
		return protocolError("more than %d commands, or messages of other topics, in a second", maxIdle)
	}
	return nil
}

// Receive waits for the next message. Its frames are borrowed until the next Receive. At most
// maxFrames are accepted. It answers the peer's PINGs, and sends PINGs while the peer is silent;
// both only while it waits.
func (c *Conn) Receive() (frames [][]byte, err error) { return c.ReceiveWithin(0) }

// ReceiveWithin is Receive, and fails with ErrNoMessage if no message has begun within d
// although the peer is there. After this error one may receive again. If d is 0, it waits as
// long as the peer is there.
func (c *Conn) ReceiveWithin(d time.Duration) (frames [][]byte, err error) {
	if c.in.end = (time.Time{}); d > 0 {
		c.in.end = time.Now().Add(d)
	}
	frames, err = c.receive()
	if err != nil && !errors.Is(err, ErrNoMessage) {
		err = fmt.Errorf("%w (%s)", err, c.peer)
	}
	return frames, err
}

// receive reads the frames of a message, and commands before and between them.
func (c *Conn) receive() ([][]byte, error) {
	if cap(c.body) > SmallMessage {
		c.body = nil
	}
	c.body = c.body[:0]
	var ends [maxFrames]int // of the frames in body
	frames, commands := 0, 0
	for {
		if frames == 0 {
			c.in.begun, c.in.stepEnd = false, time.Time{}
		}
		h, err := c.readHeader()
		if err != nil {
			return nil, err
		}
		isCommand := h.Flags&netproto.FlagCommand != 0
		switch {
		case h.Flags&^(netproto.FlagMore|netproto.FlagLong|netproto.FlagCommand) != 0 || isCommand && h.More():
			return nil, protocolError("a frame of flags %#x", h.Flags)
		case isCommand && commands == maxCommandsInside:
			return nil, protocolError("more than %d commands inside one message", maxCommandsInside)
		case isCommand:
			if err := c.handleCommand(h); err != nil {
				return nil, err
			}
			switch {
			case frames > 0:
				commands++
			case !c.in.end.IsZero() && !time.Now().Before(c.in.end): // each command may take Timeout
				return nil, ErrNoMessage
			}
			continue
		case frames == maxFrames:
			return nil, protocolError("a message of more than %d frames", maxFrames)
		case h.Size > uint64(c.cfg.MaxMessage-len(c.body)):
			return nil, protocolError("a frame of %d bytes after %d; a message may have %d, see max_payload", h.Size, len(c.body), c.cfg.MaxMessage)
		}
		if err := c.readBody(int(h.Size)); err != nil {
			return nil, err
		}
		ends[frames] = len(c.body)
		frames++
		if !h.More() {
			return c.split(ends[:frames]), nil
		}
	}
}

// split returns the frames that end at these offsets of body.
func (c *Conn) split(ends []int) [][]byte {
	begin := 0
	for i, end := range ends {
		c.frames[i] = c.body[begin:end:end]
		begin = end
	}
	return c.frames[:len(ends)]
}

// readHeader reads the header of a frame. Once its first byte is there, the frame has begun.
func (c *Conn) readHeader() (netproto.FrameHeader, error) {
	for n := 1; ; {
		b, err := c.buf.Peek(n)
		if err != nil {
			return netproto.FrameHeader{}, err
		}
		c.in.begun = true
		var h netproto.FrameHeader
		if h, n = netproto.ParseFrameHeader(b); n <= len(b) {
			_, err = c.buf.Discard(n)
			return h, err
		}
	}
}

// readBody appends the next size bytes to body, which at most doubles before they have arrived.
func (c *Conn) readBody(size int) error {
	total := len(c.body) + size
	for reserved := false; size > 0; {
		begin, step := len(c.body), min(size, max(SmallMessage-len(c.body), len(c.body)))
		if begin+step > SmallMessage && !reserved && c.cfg.Reserve != nil {
			if err := c.cfg.Reserve(total); err != nil {
				return err
			}
			reserved, c.in.stepEnd = true, time.Time{} // that may have taken a while
		}
		c.body = slices.Grow(c.body, step)[:begin+step]
		if _, err := io.ReadFull(c.buf, c.body[begin:]); err != nil {
			return err
		}
		size -= step
	}
	return nil
}

// readCommand reads the body of a command. What it returns is valid until the next read.
func (c *Conn) readCommand(h netproto.FrameHeader) (name, data []byte, err error) {
	if h.Size > netproto.MaxCommand {
		return nil, nil, protocolError("a command of %d bytes; at most %d are accepted", h.Size, netproto.MaxCommand)
	}
	body, err := c.buf.Peek(int(h.Size))
	if err != nil {
		return nil, nil, err
	}
	if _, err := c.buf.Discard(len(body)); err != nil {
		return nil, nil, err
	}
	name, data, ok := netproto.SplitCommand(body)
	switch {
	case !ok:
		return nil, nil, protocolError("a malformed command: %s", show(body))
	case string(name) == netproto.CommandError:
		return nil, nil, protocolError("the peer refuses the connection: %s", show(data))
	}
	return name, data, nil
}

// handleCommand reads a command, and answers a PING. Commands that are not known are ignored.
func (c *Conn) handleCommand(h netproto.FrameHeader) error {
	name, data, err := c.readCommand(h)
	if err == nil {
		err = c.CountIdle()
	}
	if err != nil || string(name) != netproto.CommandPing {
		return err
	}
	pong, ok := netproto.AppendPong(nil, data)
	if !ok {
		return protocolError("a malformed PING: %s", show(data))
	}
	return c.write(pong)
}
