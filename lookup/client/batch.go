package client

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/hitline/hitline/netproto"
)

// Ask is one lookup of a batch, and its answer.
type Ask struct {
	NumTokens uint32 // of the prompt
	Hashes    []byte // as for Client.Lookup, only borrowed
	HashLen   int    // in bytes

	HitTokens uint32 // set by Client.Batch
	Err       error  // set by Client.Batch: why there is no answer, and HitTokens is 0
}

// Batch makes many lookups, such as those of one scheduling step, in one write for
// every 512 of them; the server may answer in any order. It returns when all are
// answered or have failed, and then an error if any of asks was lost for want of a
// connection or of time; refusals stand in the asks only. The asks are the
// callee's until Batch returns. In the steady state it does not allocate.
func (c *Client) Batch(ctx context.Context, asks []Ask) error {
	for i := range asks {
		asks[i].HitTokens, asks[i].Err = 0, checkHashLen(asks[i].HashLen)
	}
	var err error
	if c.pipe != nil {
		err = c.pipe.batch(ctx, asks)
	} else {
		err = c.batch(ctx, asks)
	}
	if c.failOpen {
		for i := range asks {
			asks[i].Err = c.opened(asks[i].Err)
		}
	}
	return c.opened(err)
}

// window is how many requests of a batch are sent before their answers are read:
// as many as fit one system call, which takes 1,024 pieces.
const window = 512

// errUnasked marks, while a batch is under way, what has no answer yet.
var errUnasked = errors.New("not answered")

// batch makes a batch on one connection of the pool.
func (c *Client) batch(ctx context.Context, asks []Ask) error {
	due := 0
	for i := range asks {
		if asks[i].Err == nil {
			asks[i].Err = errUnasked
			due++
		}
	}
	if due == 0 {
		return nil
	}
	conn, err := c.pool.get(ctx, c.untilFor(ctx))
	if err != nil {
		err = connectError(err)
	} else {
		for rest := asks; err == nil && len(rest) > 0; {
			n := min(len(rest), window)
			err = conn.batch(rest[:n])
			rest = rest[n:]
		}
		c.pool.put(conn, err)
	}
	if err == nil {
		return nil
	}
	err = exchangeError(err)
	for i := range asks {
		if asks[i].Err == errUnasked { //nolint:errorlint // a mark, never wrapped
			asks[i].Err = err
		}
	}
	return err
}

// batch sends the asks that have no answer and reads theirs.
func (c *conn) batch(asks []Ask) error {
	if err := c.arm(); err != nil {
		return err
	}
	c.turn++
	due := c.encode(asks)
	if due == 0 {
		return nil
	}
	if err := c.write(); err != nil {
		return err
	}
	at := 0
	for c.have = 0; due > 0; due-- {
		end, err := c.next(at)
		if err != nil {
			return err
		}
		if err := c.settle(asks); err != nil {
			return err
		}
		if at = end; at == c.have {
			at, c.have = 0, 0
		}
	}
	if at != c.have {
		return fmt.Errorf("%w: %d bytes behind the last of a batch", ErrReply, c.have-at)
	}
	return nil
}

// encode makes parts of the asks that have no answer, and counts them.
func (c *conn) encode(asks []Ask) (n int) {
	c.head, c.ends = c.head[:0], c.ends[:0]
	var id [envelopeLen]byte
	for i := range asks {
		if a := &asks[i]; a.Err == errUnasked { //nolint:errorlint // a mark, never wrapped
			r := request{tag: netproto.TagLookup, numTokens: a.NumTokens, hashLen: a.HashLen, blob: a.Hashes}
			c.head = r.appendHead(c.head, appendEnvelope(id[:0], uint32(i), c.turn))
			n++
		}
		c.ends = append(c.ends, len(c.head))
	}
	c.parts = c.parts[:0]
	begin := 0
	for i, end := range c.ends {
		if end > begin {
			c.parts = append(c.parts, c.head[begin:end], asks[i].Hashes)
		}
		begin = end
	}
	return n
}

// settle gives a reply to the ask that it answers.
func (c *conn) settle(asks []Ask) error {
	i, turn, body, ok := splitEnvelope(c.frames)
	if !ok || turn != c.turn || int(i) >= len(asks) || asks[i].Err != errUnasked { //nolint:errorlint // a mark, never wrapped
		return errEnvelope
	}
	asks[i].HitTokens, asks[i].Err = replyHit(body)
	return nil
}

// replyHit reads the reply to a lookup.
func replyHit(body [][]byte) (uint32, error) {
	hit, err := readHit(body)
	if err != nil {
		return 0, err
	}
	return fitHit(hit)
}

// errEnvelope says that a reply answers nothing that was asked.
var errEnvelope = fmt.Errorf("%w: its envelope is of no request under way", ErrReply)

// An id is 00, a slot and a turn, each four bytes.
const (
	idLen       = 9
	envelopeLen = 2 + idLen + 2
)

// appendEnvelope appends the envelope of a request: an id and the delimiter.
func appendEnvelope(dst []byte, slot, turn uint32) []byte {
	dst = append(netproto.AppendFrameHeader(dst, idLen, true), 0)
	dst = binary.BigEndian.AppendUint32(dst, slot)
	dst = binary.BigEndian.AppendUint32(dst, turn)
	return netproto.AppendFrameHeader(dst, 0, true)
}

// splitEnvelope takes a reply's envelope apart. The body has at least one frame.
func splitEnvelope(frames [][]byte) (slot, turn uint32, body [][]byte, ok bool) {
	if len(frames) < 3 || len(frames[0]) != idLen || frames[0][0] != 0 || len(frames[1]) != 0 {
		return 0, 0, nil, false
	}
	id := frames[0]
	return binary.BigEndian.Uint32(id[1:]), binary.BigEndian.Uint32(id[5:]), frames[2:], true
}

// batch makes a batch on the shared connection.
func (p *pipe) batch(ctx context.Context, asks []Ask) error {
	if err := ctx.Err(); err != nil {
		err = exchangeError(err)
		var lost error
		for i := range asks {
			if asks[i].Err == nil {
				asks[i].Err, lost = err, err
			}
		}
		return lost
	}
	calls := p.lendList()
	defer p.returnList(calls)
	for i := range asks {
		var cl *call
		if a := &asks[i]; a.Err == nil {
			cl = p.lend(request{tag: netproto.TagLookup, numTokens: a.NumTokens, hashLen: a.HashLen, blob: a.Hashes})
		}
		calls.list = append(calls.list, cl)
	}
	p.submit(calls.list...)
	until := untilAfter(p.timeout)
	var lost error
	var ended bool
	for i, cl := range calls.list {
		if cl == nil {
			continue
		}
		if err := p.await(ctx, cl, until); err != nil {
			asks[i].Err, lost = err, err // without waiting anew: until is the same for all
			if !ended {
				ended = true
				p.dequeue(calls.list[i+1:], err) // at once: one by one takes time that grows with the square
			}
		} else if asks[i].Err = cl.err; cl.err == nil {
			asks[i].HitTokens, asks[i].Err = fitHit(cl.hit)
		} else if !errors.Is(cl.err, ErrRefused) {
			lost = cl.err
		}
		p.giveBack(cl)
	}
	return lost
}

// untilAfter returns the time d from now, zero if d is no bound.
func untilAfter(d time.Duration) time.Time {
	if d <= 0 {
		return time.Time{}
	}
	return time.Now().Add(d)
}
