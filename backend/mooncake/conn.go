package mooncake

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"github.com/hitline/hitline/backend"
	"github.com/hitline/hitline/internal/ctxerr"
	"github.com/hitline/hitline/internal/idleconn"
)

const (
	// maxRequestKeys and maxRequestBytes bound one request, since the master's thread serves
	// nothing else meanwhile. More keys are sent in several requests.
	maxRequestKeys, maxRequestBytes = 16 << 10, 4 << 20
	// maxErrorReply bounds the body of an error reply, in bytes.
	maxErrorReply = 64 << 10
	// maxIdleBuffer is the largest buffer, in bytes, that an idle connection keeps.
	maxIdleBuffer = 4 << 20
)

// conn is a connection to a master. It serves one request at a time. It is not safe for
// concurrent use; whoever took it from the pool owns it.
type conn struct {
	net      *net.TCPConn
	addr     string
	form     Form
	term     uint64        // of the leader at the time of the dial
	number   uint32        // in the order of dials
	seq      uint32        // of the next request
	replies  *bufio.Reader // of net: most replies are read at once
	out, in  []byte        // reused for requests and replies
	broken   bool          // a request failed or was interrupted: must not be used again
	reused   bool          // has been idle, so the master may have closed it
	heard    bool          // the master has answered since it was idle
	identity identity      // of the process

	stopWatching func() bool // ends that Client.Close closes it
}

// run runs do, interrupted when ctx ends. If do fails or is interrupted, the connection is
// broken.
func (c *conn) run(ctx context.Context, do func(*conn) error) error {
	deadline, _ := ctx.Deadline()
	if err := c.net.SetDeadline(deadline); err != nil {
		return err
	}
	began := time.Now()
	stop := context.AfterFunc(ctx, func() { _ = c.net.SetDeadline(ctxerr.LongAgo) })
	err := do(c)
	if !stop() || err != nil {
		c.broken = true
	}
	if err != nil && isTimeout(err) {
		if cause := ctxerr.Of(ctx); cause != nil {
			err = ctxerr.Late(cause, began, "no answer")
		}
	}
	return err
}

// beginRequest writes the header of a request to out. The caller appends the body.
func (c *conn) beginRequest(function uint32) {
	c.out = appendRequest(c.out[:0], c.seq, function)
}

// roundTrip sends the request in out and returns the body of its reply, which is valid until
// the next request. An error reply is an rpcError. limit bounds the body of a result.
func (c *conn) roundTrip(limit int) ([]byte, error) {
	seq := c.seq
	c.seq++
	if _, err := c.net.Write(endRequest(c.out)); err != nil {
		return nil, err
	}
	var head [responseLen]byte
	n, err := io.ReadFull(c.replies, head[:])
	c.heard = c.heard || n > 0
	if err != nil {
		if n >= len("HTTP") && (head[0] != magic || head[1] != 0) {
			return nil, explainForeign(head[:n])
		}
		return nil, err
	}
	h, err := parseHeader(head[:], seq, max(limit, maxErrorReply))
	if err != nil {
		return nil, err
	}
	if cap(c.in) < h.body {
		c.in = make([]byte, h.body)
	}
	c.in = c.in[:h.body]
	if _, err := io.ReadFull(c.replies, c.in); err != nil {
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

// batchExist asks for keys [from, to), or as many of them as fit into one request, and writes one
// answer for each. It returns the end of those.
func (c *conn) batchExist(form Form, keys backend.Keys, from, to int, tenant string, answers []int) (end int, err error) {
	function := fnBatchExistKey
	if form == formProbe {
		function = fnBatchProbeKey
	}
	c.beginRequest(function)
	c.out, end = appendExist(c.out, form, keys, from, to, tenant)
	body, err := c.roundTrip(5*(end-from) + 64) // at most 5 bytes an answer
	if err != nil {
		return from, err
	}
	return end, parseExist(body, answers[from:end])
}

// askNothing asks for no keys.
func (c *conn) askNothing(tenant string) error {
	_, err := c.batchExist(c.form, backend.KeyList(nil), 0, 0, tenant, nil)
	return err
}

// negotiate sets the form that the master takes, and the identity of its process. It tries requests for no keys, or for
// the one in question.
func (c *conn) negotiate(tenant string, question identityQuestion) error {
	var keys backend.KeyList
	if question.key != "" {
		keys = append(keys, question.key)
	}
	answers := make([]int, len(keys))
	for _, c.form = range []Form{FormTenant, FormKeys} {
		_, err := c.batchExist(c.form, keys, 0, len(keys), tenant, answers)
		if isUnknownCall(err) {
			continue
		}
		question.view = question.view && c.form == FormTenant
		c.identity = identity{question: question, keyGone: slices.ContainsFunc(answers, func(a int) bool { return a != 1 })}
		if err == nil && question.view {
			err = c.askView()
		}
		return err
	}
	return fmt.Errorf("%w: %w", backend.ErrUnavailable, errForm)
}

// isUnknownCall reports whether the master has no such function, or not with such arguments.
func isUnknownCall(err error) bool {
	var rpc *rpcError
	return errors.As(err, &rpc) && (rpc.code == codeArguments || rpc.code == codeNotRegister)
}

// version returns the version that the master reports.
func (c *conn) version() (string, error) {
	c.beginRequest(fnServiceReady)
	body, err := c.roundTrip(maxErrorReply)
	if err != nil {
		return "", err
	}
	return parseVersion(body)
}

// removeAll removes every key of the tenant and returns how many there were.
func (c *conn) removeAll(tenant string) (int64, error) {
	c.beginRequest(fnRemoveAll)
	c.out = appendRemoveAll(c.out, c.form, tenant)
	body, err := c.roundTrip(64)
	if c.form == FormKeys && isUnknownCall(err) { // before v0.3.9 RemoveAll has no arguments
		c.beginRequest(fnRemoveAll)
		body, err = c.roundTrip(64)
	}
	if err != nil {
		return 0, err
	}
	return parseCount(body)
}

// prepareIdle marks the connection as reused and frees large buffers.
func (c *conn) prepareIdle() {
	c.reused = true
	if cap(c.out) > maxIdleBuffer {
		c.out = nil
	}
	if cap(c.in) > maxIdleBuffer {
		c.in = nil
	}
}

// ended reports whether the master has ended the connection, which is idle.
func (c *conn) ended() bool { return idleconn.Ended(c.net) }

// endedBefore reports whether a call failed because the master had closed the connection, as far as is known, before
// it got the call: masters and proxies close idle ones, and the end may be on its way when the call is sent.
func (c *conn) endedBefore(err error) bool { return c.reused && closedByPeer(err) && !c.heard }

func (c *conn) close() {
	c.stopWatching()
	_ = c.net.Close()
}
