package client

import (
	"context"
	"errors"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/netproto"
)

// BatchLookup is one lookup of a batch, and its answer.
type BatchLookup struct {
	NumTokens int64              // of the prompt
	Hashes    coordinator.Hashes // of its blocks; borrowed until Client.Batch returns

	Hit api.Hit // set by Client.Batch
	Err error   // set by Client.Batch: why there is no answer; Hit is then 0
}

// Batch makes many lookups, such as those of one scheduling step, with one write for every
// 512 of them. The server may answer in any order. Batch returns when all are answered or
// have failed.
//
// It returns an error if the connection failed or the time was up before all were
// answered. What concerns one lookup only, such as ErrRefused and ErrRequest, is in its
// BatchLookup.Err. lookups belong to Batch until it returns. In the steady
// state it allocates the hits' tail boundaries alone.
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
			lookups[i].Err = c.wrapFailedOpen(lookups[i].Err)
		}
	}
	return c.wrapFailedOpen(err)
}

// request returns the lookup's request, or ErrRequest.
func (l *BatchLookup) request() (request, error) {
	return hashesRequest(netproto.TagLookup, l.NumTokens, l.Hashes)
}

// maxBatchWrite bounds the requests of one write. Each has two buffers, and writev takes
// 1,024.
const maxBatchWrite = 512

// errUnanswered marks the lookups of a batch in progress that have no answer yet.
var errUnanswered = errors.New("not answered")

// batch makes a batch on one connection of the pool.
func (c *Client) batch(ctx context.Context, lookups []BatchLookup) error {
	due := 0
	for i := range lookups {
		if lookups[i].Err == nil {
			lookups[i].Err = errUnanswered
			due++
		}
	}
	if due == 0 {
		return nil
	}
	conn, err := c.pool.get(ctx, c.deadlineFor(ctx))
	if err != nil {
		err = connectError(err)
	} else {
		for rest := lookups; err == nil && len(rest) > 0; {
			n := min(len(rest), maxBatchWrite)
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
		if lookups[i].Err == errUnanswered { //nolint:errorlint // a mark, never wrapped
			lookups[i].Err = err
		}
	}
	return err
}

// batch writes the unanswered lookups at once and reads their replies.
func (c *conn) batch(lookups []BatchLookup) error {
	if err := c.setDeadline(); err != nil {
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
	c.inLen = 0
	at, err := c.readInstance()
	if err != nil {
		return err
	}
	for ; due > 0; due-- {
		end, err := c.readMessage(at)
		if err != nil {
			return err
		}
		if err := c.setAnswer(lookups); err != nil {
			return err
		}
		if at = end; at == c.inLen {
			at, c.inLen = 0, 0
		}
	}
	return c.checkEnd(at)
}

// encode fills parts with the unanswered lookups and returns their number.
func (c *conn) encode(lookups []BatchLookup) (n int) {
	c.head, c.ends = c.head[:0], c.ends[:0]
	c.parts = c.parts[:0]
	if c.instances != nil {
		c.head = appendPing(c.head)
	}
	begin := len(c.head)
	var id [envelopeLen]byte
	for i := range lookups {
		if l := &lookups[i]; l.Err == errUnanswered { //nolint:errorlint // a mark, never wrapped
			r, _ := l.request() // checked by Batch
			c.head = r.appendHead(c.head, appendEnvelope(id[:0], uint32(i), c.batchID))
			n++
		}
		c.ends = append(c.ends, len(c.head))
	}
	if begin > 0 {
		c.parts = append(c.parts, c.head[:begin])
	}
	for i, end := range c.ends {
		if end > begin {
			c.parts = append(c.parts, c.head[begin:end], lookups[i].Hashes.Blob())
		}
		begin = end
	}
	return n
}

// setAnswer stores the reply in frames with the lookup that it answers.
func (c *conn) setAnswer(lookups []BatchLookup) error {
	i, generation, body, ok := splitEnvelope(c.frames)
	if !ok || generation != c.batchID || int(i) >= len(lookups) || lookups[i].Err != errUnanswered { //nolint:errorlint // a mark, never wrapped
		return errEnvelope
	}
	lookups[i].Hit, lookups[i].Err = readHit(body)
	return nil
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
	deadline := deadlineAfter(p.timeout)
	var lost error
	var ended bool
	for i, cl := range calls.list {
		if cl == nil {
			continue
		}
		if err := p.await(ctx, cl, deadline); err != nil {
			lookups[i].Err, lost = err, err // the deadline is that of all, so the others do not wait
			if !ended {
				ended = true
				p.failQueued(calls.list[i+1:], err) // all at once: one by one would be quadratic
			}
		} else if lookups[i].Err = cl.err; cl.err == nil {
			lookups[i].Hit = cl.hit
		} else if !errors.Is(cl.err, ErrRefused) && !errors.Is(cl.err, errHit) {
			lost = cl.err
		}
		p.putCall(cl)
	}
	return lost
}
