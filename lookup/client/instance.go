package client

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/netproto"
)

// WithOnInstance has the client call fn with the first instance of the server that it meets, and
// then whenever a connection is made to another one than before: the server was restarted, and
// its memory index is empty. The call comes before the first answer of that connection is
// returned. To learn the instance the client sends a ping in front of the first request of each
// connection, together with it.
//
// fn is called on the goroutine of a call of the client, or with WithPipeline and by an
// AsyncClient on the one that reads replies. Answers wait until it returns, so it should only set
// a flag or the like; it must not use the client. Calls of fn do not overlap. If fn panics, the
// panic goes no further. fn is not called for servers that do not name their instance, nor for
// resets.
func WithOnInstance(fn func(api.Instance)) Option {
	return func(c *config) { c.onInstance = fn }
}

// Instance asks the server which instance it is, and for its versions.
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
	last string     // ID of the instance met last
}

// newInstanceWatch returns nil if fn is.
func newInstanceWatch(fn func(api.Instance)) *instanceWatch {
	if fn == nil {
		return nil
	}
	return &instanceWatch{fn: fn}
}

// meet takes the reply to the first ping of a connection. One that does not name an instance is
// ignored.
func (w *instanceWatch) meet(frames [][]byte) {
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

// meetInstance reads the reply to the ping in front of the first requests, and returns where it
// ends in in.
func (c *conn) meetInstance() (end int, err error) {
	w := c.instances
	if w == nil {
		return 0, nil
	}
	if end, err = c.readMessage(0); err == nil {
		c.instances = nil
		w.meet(c.frames)
	}
	return end, err
}

// instanceCall returns the ping in front of the first requests of a pipe's connection. Nobody
// waits for it.
func instanceCall() *call {
	return &call{request: request{tag: netproto.TagPing}, greets: true, done: make(chan struct{}, 1)}
}

// meetInstance takes the reply to instanceCall. mu is held, but not while the function runs.
func (p *pipe) meetInstance(body [][]byte) {
	p.mu.Unlock()
	defer p.mu.Lock()
	p.dialer.instances.meet(body)
}
