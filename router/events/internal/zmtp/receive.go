package zmtp

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"
)

const (
	// maxFrames bounds the frames of a message. A batch of KV events has 3, and an answer of a
	// replay socket 4.
	maxFrames = 16
	// maxCommand bounds a command: READY has the most, with an identity of 255 bytes.
	maxCommand = 4 << 10
	// maxCommandsInside bounds the commands between the frames of one message, which stay in
	// the buffer. The RFC does not allow them there, but libzmq sends a PING or PONG when it is due.
	maxCommandsInside = 64
	// maxPingContext bounds the bytes that a PING has for the PONG to repeat, by RFC 37.
	maxPingContext = 16
	pingTTL        = 2 // bytes of a PING's time to live
	// stepBytes is what must arrive of a message within Timeout: a slow peer does not hold
	// the connection, and a large message over a slow link passes.
	stepBytes = 1 << 20
	// minWait is the least that is waited for a peer that has been silent for nearly Timeout:
	// its bytes may be there already.
	minWait = 10 * time.Millisecond
)

// ourPing has a time to live of 0, which is none: the peer must not close the connection while the
// caller handles a message and nothing is sent. The context is empty.
var ourPing = appendCommand(nil, commandPing, "\x00\x00")

// message is the message in progress. Offsets count from input.begin, so that they stay valid
// when the buffer moves.
type message struct {
	parsed   int // bytes of whole frames, and of commands among them
	body     int // bytes of the frames' bodies
	frames   int
	commands int
	at       [maxFrames]struct{ begin, end int }

	// A message or command that has begun must reach next bytes by stepEnd. stepEnd is zero
	// while nothing has begun.
	stepEnd time.Time
	next    int
}

// Receive waits for the next message. Its frames are borrowed until the next Receive. At most
// maxFrames are accepted. It answers the peer's PINGs, and sends PINGs while the peer is silent;
// both only while it waits.
func (c *Conn) Receive() (frames [][]byte, err error) { return c.ReceiveWithin(0) }

// ReceiveWithin is Receive, and fails with ErrNoMessage if no message has begun within d
// although the peer is there. After this error one may receive again. If d is 0, it waits as
// long as the peer is there.
func (c *Conn) ReceiveWithin(d time.Duration) (frames [][]byte, err error) {
	if c.readErr != nil {
		return nil, c.readErr
	}
	c.in.consumed(c.borrowed)
	c.borrowed = 0
	c.in.shrink(false)
	var m message
	var end time.Time // of the wait for a message; zero: none
	for {
		missing, err := c.parse(&m)
		if err == nil && missing == 0 {
			return c.borrow(&m), nil
		}
		if err == nil {
			if d > 0 && end.IsZero() {
				end = time.Now().Add(d)
			}
			err = c.wait(&m, missing, end)
		}
		if err != nil {
			if !errors.Is(err, ErrNoMessage) {
				err = fmt.Errorf("%w (%s)", err, c.peer)
				c.readErr = err
			}
			return nil, err
		}
	}
}

// borrow returns the frames of a whole message.
func (c *Conn) borrow(m *message) [][]byte {
	c.borrowed = m.parsed
	b := c.in.unread()
	for i, s := range m.at[:m.frames] {
		c.frames[i] = b[s.begin:s.end:s.end]
	}
	return c.frames[:m.frames]
}

// parse parses the frames and commands that have arrived. It returns how many bytes are missing
// at least, as the peer says, or 0 if the message is whole.
func (c *Conn) parse(m *message) (missing uint64, err error) {
	for {
		b := c.in.unread()[m.parsed:]
		h, ok := parseHeader(b)
		if !ok {
			return 1, nil
		}
		if err := c.check(m, h); err != nil {
			return 0, err
		}
		if arrived := uint64(len(b) - h.bytes); arrived < h.size {
			return h.size - arrived, nil
		}
		size := int(h.size)
		if h.flags&flagCommand != 0 {
			if err := c.handle(b[h.bytes : h.bytes+size]); err != nil {
				return 0, err
			}
			m.parsed += h.bytes + size
			m.commands++
			if m.frames == 0 { // between messages
				c.in.skip(m.parsed)
				*m = message{}
			}
			continue
		}
		begin := m.parsed + h.bytes
		m.at[m.frames].begin, m.at[m.frames].end = begin, begin+size
		m.frames++
		m.body += size
		m.parsed = begin + size
		if h.flags&flagMore == 0 {
			return 0, nil
		}
	}
}

// check checks the header of the next frame before its body is read.
func (c *Conn) check(m *message, h header) error {
	switch {
	case h.flags&^knownFlags != 0:
		return fmt.Errorf("%w: flags %#x", ErrFrame, h.flags)
	case h.flags&flagCommand != 0 && h.flags&flagMore != 0:
		return fmt.Errorf("%w: it has the flag MORE", ErrCommand)
	case h.flags&flagCommand != 0 && h.size > maxCommand:
		return fmt.Errorf("%w: %d bytes; at most %d are accepted", ErrCommand, h.size, maxCommand)
	case h.flags&flagCommand != 0 && m.commands >= maxCommandsInside:
		return fmt.Errorf("%w: more than %d inside one message", ErrCommand, maxCommandsInside)
	case h.flags&flagCommand != 0:
		return nil
	case m.frames == maxFrames:
		return fmt.Errorf("%w: at most %d are accepted", ErrTooManyFrames, maxFrames)
	case h.size > uint64(c.cfg.MaxMessage-m.body):
		return fmt.Errorf("%w: a frame of %d bytes behind %d; at most %d are accepted", ErrTooLarge, h.size, m.body, c.cfg.MaxMessage)
	}
	return nil
}

// handle handles a command. Those that are not known are ignored.
func (c *Conn) handle(body []byte) error {
	name, data, ok := splitCommand(body)
	switch {
	case !ok:
		return fmt.Errorf("%w: %s", ErrCommand, show(body))
	case string(name) == commandError:
		return refusal(data)
	case string(name) == commandPing && (len(data) < pingTTL || len(data) > pingTTL+maxPingContext):
		return fmt.Errorf("%w: a PING of %d bytes", ErrCommand, len(data))
	case string(name) == commandPing:
		return c.write(func(b []byte) []byte { return appendCommand(b, commandPong, data[pingTTL:]) })
	}
	return nil
}

// wait reads more, or fails: with ErrNoMessage at end, with ErrTimeout if the peer is silent or
// slow.
func (c *Conn) wait(m *message, missing uint64, end time.Time) error {
	for {
		start := time.Now()
		begun := m.advanceStep(start, len(c.in.unread()), c.cfg.Timeout)
		deadline, then := c.nextDeadline(m, begun, start, end)
		if err := c.conn.SetReadDeadline(deadline); err != nil {
			return c.ioError("reading", err)
		}
		err := c.in.read(c.conn, missing)
		if err == nil {
			c.silent, c.pinged = 0, false
			return nil
		}
		if !isTimeout(err) {
			if begun && errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return c.ioError("reading", err)
		}
		c.silent += time.Since(start)
		if err := c.timedOut(then, begun); err != nil {
			return err
		}
	}
}

// advanceStep reports whether a message or command has begun. If so it moves the deadline of its step
// when the step is complete.
func (m *message) advanceStep(now time.Time, unread int, timeout time.Duration) bool {
	if unread == 0 {
		return false
	}
	if m.stepEnd.IsZero() || unread >= m.next {
		m.stepEnd, m.next = now.Add(timeout), unread+stepBytes
	}
	return true
}

// waitEnd is what follows a wait in which no byte came.
type waitEnd uint8

const (
	endSendPing waitEnd = iota
	endSilent
	endSlow
	endNoMessage
)

// nextDeadline returns the deadline of the next read, zero if there is none, and what follows if no
// byte came by then.
func (c *Conn) nextDeadline(m *message, begun bool, now, end time.Time) (deadline time.Time, then waitEnd) {
	if c.minor > 0 && !c.pinged {
		deadline, then = now.Add(max(c.cfg.Timeout/3-c.silent, minWait)), endSendPing
	} else if c.minor > 0 {
		deadline, then = now.Add(max(c.cfg.Timeout-c.silent, minWait)), endSilent
	}
	other, reason := end, endNoMessage
	if begun {
		other, reason = m.stepEnd, endSlow
	}
	if !other.IsZero() && (deadline.IsZero() || other.Before(deadline)) {
		deadline, then = other, reason
	}
	return deadline, then
}

// timedOut does what follows a wait in which no byte came.
func (c *Conn) timedOut(then waitEnd, begun bool) error {
	switch then {
	case endNoMessage:
		return ErrNoMessage
	case endSilent:
		return fmt.Errorf("%w: silent for %v, a PING included", ErrTimeout, c.cfg.Timeout)
	case endSlow:
		return fmt.Errorf("%w: the rest of a message did not come within %v", ErrTimeout, c.cfg.Timeout)
	}
	if !begun {
		c.in.shrink(true)
	}
	c.pinged = true
	return c.write(func(b []byte) []byte { return append(b, ourPing...) })
}

// ioError wraps an error of the socket, without the addresses that net adds.
func (c *Conn) ioError(doing string, err error) error {
	if isTimeout(err) {
		return fmt.Errorf("%w: %v while %s", ErrTimeout, c.cfg.Timeout, doing)
	}
	if op := (*net.OpError)(nil); errors.As(err, &op) {
		err = op.Err
	}
	return fmt.Errorf("events: zmtp: %s: %w", doing, err)
}

func isTimeout(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }
