package client

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/netproto"
)

// WithOnInstance makes the client call fn with the instance of the server on its first
// connection, and again whenever a connection is to another instance than the one before: the
// server was restarted, and its memory index is empty. fn is called before the first answer of
// that connection is returned. To learn the instance the client sends a ping in front of the
// first request of each connection, in the same write.
//
// fn is called on the goroutine of a call of the client, or with WithPipeline and by an
// AsyncClient on the one that reads replies. Answers wait until it returns, so it should only set
// a flag or the like. It must not use the client. Calls of fn do not overlap. A panic of fn is
// recovered. fn is not called for servers that do not name their instance or do not allow this
// client a ping, nor for resets.
func WithOnInstance(fn func(api.Instance)) Option {
	return func(c *config) { c.onInstance = fn }
}

// Instance returns the server's instance and its versions. It makes a round trip, and fails with
// ErrReply if the server does not name an instance.
func (c *Client) Instance(ctx context.Context) (api.Instance, error) {
	var i api.Instance
	doc, err := c.fetchDocument(ctx, request{tag: netproto.TagPing})
	if err == nil && json.Unmarshal(doc, &i) != nil {
		err = fmt.Errorf("%w: ping without its JSON document", ErrReply)
	}
	return i, err
}

// instanceWatch calls the function of WithOnInstance. It is shared by all connections of a
// client.
type instanceWatch struct {
	fn func(api.Instance)

	mu   sync.Mutex // held while fn runs, so that answers of other connections wait for it, too
	last string     // ID of the last instance
}

// newInstanceWatch returns nil if fn is.
func newInstanceWatch(fn func(api.Instance)) *instanceWatch {
	if fn == nil {
		return nil
	}
	return &instanceWatch{fn: fn}
}

// handleReply calls fn if the reply to a ping names another instance than the last one. A reply
// that names none is ignored.
func (w *instanceWatch) handleReply(frames [][]byte) {
	var i api.Instance
	if readStatus(frames) != nil || len(frames) != 2 || json.Unmarshal(frames[1], &i) != nil || i.ID == "" {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if i.ID == w.last {
		return
	}
	w.last = i.ID
	defer func() { _ = recover() }()
	w.fn(i)
}

// appendPing appends the ping in front of the first requests of a connection.
func appendPing(dst []byte) []byte {
	return netproto.AppendRequest(dst, nil, netproto.TagPing)
}

// readInstance reads the reply to the ping in front of the first requests, and returns where it
// ends in in.
func (c *conn) readInstance() (end int, err error) {
	w := c.instances
	if w == nil {
		return 0, nil
	}
	if end, err = c.readMessage(0); err == nil {
		c.instances = nil
		w.handleReply(c.frames)
	}
	return end, err
}

// newInstanceCall returns the ping in front of the first requests of a pipe's connection. Nobody
// waits for it.
func newInstanceCall() *call {
	return &call{request: request{tag: netproto.TagPing}, instance: true, done: make(chan struct{}, 1)}
}

// handleInstance handles the reply to newInstanceCall. mu is held, but not while the function runs.
func (p *pipe) handleInstance(body [][]byte) {
	p.mu.Unlock()
	defer p.mu.Lock()
	p.dialer.instances.handleReply(body)
}
