//go:build linux

package load

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/wire"

	"github.com/hitline/hitline/netproto"
)

// conn is a connection that is measured. Not safe for concurrent use.
type conn struct {
	number int
	hashes int // of a lookup
	socket wire.Socket
	source source
	ended  bool // the source has no more

	slots    []slot // a ring
	asked    int64  // number of the next request
	answered int64  // number of the next answer
	parts    [][]byte
	vector   []wire.Vector // of requests
	in       []byte        // read and not yet checkedReply
	buffer   []byte        // backing of in

	taken   int64 // requests of an open loop that were made
	budget  int64 // requests that may still count; negative: any number
	waiting bool  // the kernel will say when more can be written

	hit, done, pong []byte // what answers begin with, or are
	frames          [][]byte
}

// replySize is how much a reply may take, a refusal with its reason included.
const replySize = 4096

func newConn(number int, o Options, s wire.Socket) *conn {
	c := &conn{
		number: number, hashes: o.Hashes, socket: s, slots: make([]slot, o.Pipeline), budget: -1,
		buffer: make([]byte, max(2*replySize, 16*o.Pipeline)),
	}
	c.hit, c.done = wire.Raw.HitPrefix(), netproto.AppendDone(nil, nil, nil)
	c.pong = netproto.AppendDone(nil, nil, netproto.AppendFrame(nil, wire.PingPayload, false))
	return c
}

// inFlight is how many requests have no answer yet.
func (c *conn) inFlight() int { return int(c.asked - c.answered) }

// canSend reports whether there is more to ask.
func (c *conn) canSend() bool { return !c.ended && c.budget != 0 }

// full reports whether no more may be under way now.
func (c *conn) full() bool { return c.inFlight() == len(c.slots) || !c.canSend() }

// ask makes the next request, which fell due at start; false if the source has no
// more.
func (c *conn) ask(start, now int64, counts bool) bool {
	s := &c.slots[c.asked%int64(len(c.slots))]
	parts, more := c.source(s, c.parts[:0])
	c.parts = parts
	if !more {
		c.ended = true
		return false
	}
	s.start, s.sent, s.counts = start, now, counts
	if counts && c.budget > 0 {
		c.budget--
	}
	c.asked++
	for _, part := range parts {
		c.vector = append(c.vector, wire.VectorOf(part))
	}
	return true
}

// send hands to the kernel what it takes.
func (c *conn) send() error {
	rest, err := c.vector, error(nil)
	for len(rest) > 0 && err == nil {
		rest, err = c.socket.WriteOnce(rest)
	}
	c.vector = c.vector[:copy(c.vector, rest)]
	if errors.Is(err, wire.ErrAgain) {
		return nil
	}
	return err
}

// unsent reports whether the kernel has not taken all.
func (c *conn) unsent() bool { return len(c.vector) > 0 }

// receive reads once; nothing if nothing has come.
func (c *conn) receive() error {
	n, err := c.socket.Read(c.buffer[len(c.in):])
	if errors.Is(err, wire.ErrAgain) {
		return nil
	}
	if err != nil {
		return err
	}
	c.in = c.buffer[:len(c.in)+n]
	return nil
}

// checkedReply is an answer that has come.
type checkedReply struct {
	slot    *slot
	number  int64  // of the request, from 0
	problem string // what came in place of the right answer; empty if that did
	refused bool
	low     bool // a hit below the right one
}

// checkReplies checks the answers that have come whole and gives each to take.
func (c *conn) checkReplies(now int64, timeout time.Duration, take func(*conn, checkedReply)) error {
	for len(c.in) > 0 {
		if c.inFlight() == 0 {
			return fmt.Errorf("%w: bytes that were not asked for: %x", measure.ErrAnswer, wire.Clip(c.in))
		}
		a := checkedReply{slot: &c.slots[c.answered%int64(len(c.slots))], number: c.answered}
		n, err := c.check(&a)
		if err != nil {
			return err
		}
		if n == 0 { // the rest is to come
			break
		}
		if now-a.slot.sent > int64(timeout) {
			return tooLate(now - a.slot.sent)
		}
		c.answered++
		c.in = c.in[n:]
		take(c, a)
	}
	c.in = c.buffer[:copy(c.buffer, c.in)]
	return nil
}

// overdue returns an error if the oldest request has waited too long.
func (c *conn) overdue(now int64, timeout time.Duration) error {
	if c.inFlight() == 0 {
		return nil
	}
	if waited := now - c.slots[c.answered%int64(len(c.slots))].sent; waited > int64(timeout) {
		return tooLate(waited)
	}
	return nil
}

func tooLate(waited int64) error {
	return fmt.Errorf("%w: no answer for %v", measure.ErrLost, time.Duration(waited).Round(time.Millisecond))
}

// check compares the answer at the front of what has come with the one that is
// expected, and returns how many bytes it takes, 0 while it is not whole.
func (c *conn) check(a *checkedReply) (int, error) {
	if a.slot.tag != netproto.TagLookup {
		want := c.done
		if a.slot.tag == netproto.TagPing {
			want = c.pong
		}
		if bytes.HasPrefix(c.in, want) {
			return len(want), nil
		}
		return c.inspect(a)
	}
	n := len(c.hit)
	if !bytes.HasPrefix(c.in, c.hit) || len(c.in) < n+4 {
		return c.inspect(a)
	}
	a.compare(binary.BigEndian.Uint32(c.in[n:]))
	return n + 4, nil
}

// compare sees whether a hit is the right one.
func (a *checkedReply) compare(hit uint32) {
	if hit != a.slot.expect {
		a.problem, a.low = fmt.Sprintf("%d tokens", hit), hit < a.slot.expect
	}
}

// inspect is check for what is not of the usual form.
func (c *conn) inspect(a *checkedReply) (int, error) {
	frames, n, err := netproto.ParseMessage(c.in, netproto.Limits{MaxMessage: replySize}, c.frames[:0])
	c.frames = frames
	if errors.Is(err, netproto.ErrShort) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("%w: %x: %w", measure.ErrAnswer, wire.Clip(c.in), err)
	}
	if got, ok := wire.Hit(frames); ok && a.slot.tag == netproto.TagLookup {
		a.compare(got)
		return n, nil
	}
	a.problem = wire.Describe(frames)
	a.refused = wire.Refused(frames)
	return n, nil
}

// begin gives the connection another source, of which so many requests count; any
// number if negative.
func (c *conn) begin(s source, budget int64) { c.source, c.ended, c.budget = s, false, budget }

// Problem describes an answer that is wrong, or was refused.
type Problem struct {
	Connect    string
	Connection int    // from 0
	Request    int64  // from 1, counted on its connection
	What       string // the request
	Expected   string
	Got        string
	Reason     string // what may be behind it; may be empty
	Refused    bool   // else it is wrong
}

// Error returns one line.
func (p *Problem) Error() string {
	text := fmt.Sprintf("%s: request %d on connection %d, %s: expected %s, got %s",
		p.Connect, p.Request, p.Connection, p.What, p.Expected, p.Got)
	if p.Reason != "" {
		text += ": " + p.Reason
	}
	return text
}

// describe words what is wrong with an answer.
func (a checkedReply) describe(c *conn, o Options) *Problem {
	s := a.slot
	p := &Problem{Connect: o.Connect, Connection: c.number, Request: a.number + 1, Got: a.problem, Refused: a.refused}
	switch s.tag {
	case netproto.TagLookup:
		p.What = fmt.Sprintf("lookup of %d hashes of which the first %d are stored", c.hashes, s.stored)
		p.Expected = fmt.Sprintf("%d tokens", s.expect)
		if a.low {
			p.Reason = "below what was stored; does the server evict?"
		}
	case netproto.TagPing:
		p.What, p.Expected = "ping", "its echo"
	default:
		p.What, p.Expected = fmt.Sprintf("%v of %d keys", s.tag, c.hashes), "01"
	}
	return p
}
