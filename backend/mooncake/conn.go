package mooncake

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/hitline/hitline/backend"
)

const (
	// partKeys and partBytes bound one question: the master answers nothing else on
	// its thread meanwhile. A longer one is asked in parts.
	partKeys, partBytes = 16 << 10, 4 << 20
	// errorLimit bounds the text of an error reply.
	errorLimit = 64 << 10
	// keepBuffer is the largest buffer that an idle connection keeps.
	keepBuffer = 4 << 20
)

// longAgo as a deadline wakes a read or write at once.
var longAgo = time.Unix(1, 0)

// conn is a connection to a master, which serves one question at a time.
type conn struct {
	net     net.Conn
	addr    string
	form    Form
	term    uint64 // of the leader it was made to
	seq     uint32
	out, in []byte
	spoiled bool // not to be used again
	rested  bool // has been idle
}

// during runs do, which the end of ctx interrupts. If do fails, the connection is
// spoiled.
func (c *conn) during(ctx context.Context, do func(*conn) error) error {
	until, _ := ctx.Deadline()
	if err := c.net.SetDeadline(until); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.net.SetDeadline(longAgo) })
	err := do(c)
	if !stop() || err != nil {
		c.spoiled = true
	}
	if err != nil && timedOut(err) {
		if cause := over(ctx); cause != nil {
			err = fmt.Errorf("no answer: %w", cause)
		}
	}
	return err
}

// over returns why ctx has ended, nil if it has not. A socket can see the deadline
// pass a little before the context does.
func over(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if until, ok := ctx.Deadline(); ok && !time.Now().Before(until) {
		return context.DeadlineExceeded
	}
	return nil
}

// begin begins a request; its body is then appended to out.
func (c *conn) begin(function uint32) {
	c.out = appendRequest(c.out[:0], c.seq, function)
}

// finish sends the request and returns the body of its reply, which is good until
// the next. An error reply is an error.
func (c *conn) finish(limit int) ([]byte, error) {
	seq := c.seq
	c.seq++
	if _, err := c.net.Write(endRequest(c.out)); err != nil {
		return nil, err
	}
	var head [responseLen]byte
	if n, err := io.ReadFull(c.net, head[:]); err != nil {
		if n >= len("HTTP") && (head[0] != magic || head[1] != 0) {
			return nil, foreign(head[:n])
		}
		return nil, err
	}
	h, err := parseHeader(head[:], seq, max(limit, errorLimit))
	if err != nil {
		return nil, err
	}
	if cap(c.in) < h.body {
		c.in = make([]byte, h.body)
	}
	c.in = c.in[:h.body]
	if _, err := io.ReadFull(c.net, c.in); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	if h.code != 0 {
		return nil, parseError(h.code, c.in)
	}
	return c.in, nil
}

// exist asks for keys, one answer each, in parts if they are many.
func (c *conn) exist(keys []string, tenant string, answers []int) error {
	for {
		n := part(keys)
		c.begin(fnBatchExistKey)
		c.out = appendExist(c.out, c.form, keys[:n], tenant)
		body, err := c.finish(5*n + 64)
		if err != nil {
			return err
		}
		if err := parseExist(body, answers[:n]); err != nil {
			return err
		}
		if keys, answers = keys[n:], answers[n:]; len(keys) == 0 {
			return nil
		}
	}
}

// part returns how many of the keys make one question.
func part(keys []string) int {
	size := 0
	for i, key := range keys {
		if size += len(key); i == partKeys || i > 0 && size > partBytes {
			return i
		}
	}
	return len(keys)
}

// negotiate finds the form that the master takes, by asking for no key.
func (c *conn) negotiate(tenant string) error {
	for _, c.form = range []Form{FormTenant, FormKeys} {
		err := c.exist(nil, tenant, nil)
		if !refused(err) {
			return err
		}
	}
	return fmt.Errorf("%w: %w", backend.ErrUnavailable, ErrForm)
}

// refused tells whether a function takes other arguments, or does not exist.
func refused(err error) bool {
	var rpc *rpcError
	return errors.As(err, &rpc) && (rpc.code == codeArguments || rpc.code == codeNotRegister)
}

// version asks what the master says of itself.
func (c *conn) version() (string, error) {
	c.begin(fnServiceReady)
	body, err := c.finish(errorLimit)
	if err != nil {
		return "", err
	}
	return parseVersion(body)
}

// removeAll removes every key of the tenant and returns how many there were.
func (c *conn) removeAll(tenant string) (int64, error) {
	c.begin(fnRemoveAll)
	c.out = appendRemoveAll(c.out, c.form, tenant)
	body, err := c.finish(64)
	if c.form == FormKeys && refused(err) { // before v0.3.9 it has no arguments
		c.begin(fnRemoveAll)
		body, err = c.finish(64)
	}
	if err != nil {
		return 0, err
	}
	return parseCount(body)
}

// rest makes the connection ready to be idle.
func (c *conn) rest() {
	c.rested = true
	if cap(c.out) > keepBuffer {
		c.out = nil
	}
	if cap(c.in) > keepBuffer {
		c.in = nil
	}
}

func (c *conn) close() { _ = c.net.Close() }
