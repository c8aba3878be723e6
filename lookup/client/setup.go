package client

import (
	"encoding/json"
	"fmt"

	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/netproto"
)

// newSetup returns the requests that are written before the first one of a connection: the
// token and the description of the pool, if there are any, and a ping, which tells the server's
// limits. All are in the same write, so they cost no round trip. mu is held.
func (t *transport) newSetup(token string) (calls []*call) {
	add := func(tag netproto.Tag, blob []byte, handle func([][]byte) error) {
		calls = append(calls, &call{request: request{tag: tag, blob: blob}, handle: handle})
	}
	if token != "" {
		add(netproto.TagAuth, []byte(token), readStatus)
	}
	if t.dialer.description != nil {
		add(netproto.TagPool, t.dialer.description, t.setPool)
	}
	add(netproto.TagPing, nil, t.setInstance)
	t.inFlight.settingUp = len(calls)
	return calls
}

// deliverSetup handles a reply to the setup. The first that is refused fails the connection, with all
// calls on it. After the last the answers that came before it are given out. mu is held.
func (t *transport) deliverSetup(cl *call, body [][]byte) error {
	if err := cl.handle(body); err != nil {
		return &setupError{err}
	}
	if t.inFlight.settingUp--; t.inFlight.settingUp > 0 {
		return nil
	}
	t.dialer.recordSuccess()
	early := t.early
	t.early = nil
	for _, cl := range early {
		t.deliver(cl, cl.err)
	}
	return nil
}

// setupError is the error of all calls on a connection whose setup failed.
type setupError struct{ error }

func (e *setupError) Unwrap() error { return e.error }

// setPool reads the reply to the description of the pool.
func (t *transport) setPool(frames [][]byte) error {
	if err := readStatus(frames); err != nil {
		return err
	}
	pool := new(api.Pool)
	if len(frames) != 2 || json.Unmarshal(frames[1], pool) != nil {
		return fmt.Errorf("%w: a pool without its JSON document", ErrReply)
	}
	t.pool = pool
	return nil
}

// setInstance reads the reply to the ping. A server that refuses it to this client keeps its limits and the
// pool's alignment to itself.
func (t *transport) setInstance(frames [][]byte) error {
	var i api.Instance
	if readStatus(frames) == nil && len(frames) == 2 && json.Unmarshal(frames[1], &i) == nil {
		t.inFlight.setLimits(i.Limits)
	}
	t.alignTo = i.PromptAlignment
	return nil
}
