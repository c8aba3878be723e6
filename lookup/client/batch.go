package client

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/netproto"
)

// BatchLookup is one lookup of a batch, and its answer.
type BatchLookup struct {
	NumTokens int64           // of the prompt
	Hashes    netproto.Hashes // only borrowed

	Hit api.Hit // set by Client.Batch
	Err error   // set by Client.Batch: why there is no answer, and the hit is 0
}

// Batch makes many lookups, such as those of one scheduling step, in one write for
// every 512 of them; the server may answer in any order. It returns when all are
// answered or have failed. It then returns an error if any of them was lost for want of
// a connection or of time; refusals stand in BatchLookup.Err only. lookups belong to
// Batch until it returns. In the steady state it does not allocate.
func (c *Client) Batch(ctx context.Context, lookups []BatchLookup) error {
	for i := range lookups {
		lookups[i].Hit = api.Hit{}
		_, lookups[i].Err = lookups[i].request()
	}
	var err error
	if c.pipe != nil {
		err = c.pipe.batch(ctx, lookups)
	} else {
		err = c.batch(ctx, lookups)
	}
	if c.failOpen {
		for i := range lookups {
			lookups[i].Err = c.failedOpen(lookups[i].Err)
		}
	}
	return c.failedOpen(err)
}

func (l *BatchLookup) request() (request, error) {
	return hashesRequest(netproto.TagLookup, l.NumTokens, l.Hashes)
}

// window is how many requests of a batch are sent before their answers are read:
// as many as fit one system call, which takes 1,024 pieces.
const window = 512

// errUnasked marks, while a batch is under way, what has no answer yet.
var errUnasked = errors.New("not answered")

// batch makes a batch on one connection of the pool.
func (c *Client) batch(ctx context.Context, lookups []BatchLookup) error {
	due := 0
	for i := range lookups {
		if lookups[i].Err == nil {
			lookups[i].Err = errUnasked
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
		for rest := lookups; err == nil && len(rest) > 0; {
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
	for i := range lookups {
		if lookups[i].Err == errUnasked { //nolint:errorlint // a mark, never wrapped
			lookups[i].Err = err
		}
	}
	return err
}

// batch sends the lookups without an answer and reads their replies.
func (c *conn) batch(lookups []BatchLookup) error {
	if err := c.arm(); err != nil {
		return err
	}
	c.batchID++
	due := c.encode(lookups)
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
		if err := c.settle(lookups); err != nil {
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

// encode makes parts of the lookups that have no answer, and counts them.
func (c *conn) encode(lookups []BatchLookup) (n int) {
	c.head, c.ends = c.head[:0], c.ends[:0]
	var id [envelopeLen]byte
	for i := range lookups {
		if l := &lookups[i]; l.Err == errUnasked { //nolint:errorlint // a mark, never wrapped
			r, _ := l.request() // checked by Batch
			c.head = r.appendHead(c.head, appendEnvelope(id[:0], uint32(i), c.batchID))
			n++
		}
		c.ends = append(c.ends, len(c.head))
	}
	c.parts = c.parts[:0]
	begin := 0
	for i, end := range c.ends {
		if end > begin {
			c.parts = append(c.parts, c.head[begin:end], lookups[i].Hashes.Blob())
		}
		begin = end
	}
	return n
}

// settle gives a reply to the lookup that it answers.
func (c *conn) settle(lookups []BatchLookup) error {
	i, turn, body, ok := splitEnvelope(c.frames)
	if !ok || turn != c.batchID || int(i) >= len(lookups) || lookups[i].Err != errUnasked { //nolint:errorlint // a mark, never wrapped
		return errEnvelope
	}
	lookups[i].Hit, lookups[i].Err = replyHit(body)
	return nil
}

// replyHit reads the reply to a lookup.
func replyHit(body [][]byte) (api.Hit, error) {
	tokens, err := readHit(body)
	if err != nil {
		return api.Hit{}, err
	}
	return newHit(tokens)
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
func (p *pipe) batch(ctx context.Context, lookups []BatchLookup) error {
	if err := ctx.Err(); err != nil {
		err = exchangeError(err)
		var lost error
		for i := range lookups {
			if lookups[i].Err == nil {
				lookups[i].Err, lost = err, err
			}
		}
		return lost
	}
	calls := p.getCallList()
	defer p.putCallList(calls)
	for i := range lookups {
		var cl *call
		if l := &lookups[i]; l.Err == nil {
			r, _ := l.request() // checked by Batch
			cl = p.getCall(r)
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
			lookups[i].Err, lost = err, err // without waiting anew: until is the same for all
			if !ended {
				ended = true
				p.dequeue(calls.list[i+1:], err) // at once: one by one takes time that grows with the square
			}
		} else if lookups[i].Err = cl.err; cl.err == nil {
			lookups[i].Hit, lookups[i].Err = newHit(cl.hit)
		} else if !errors.Is(cl.err, ErrRefused) {
			lost = cl.err
		}
		p.putCall(cl)
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
