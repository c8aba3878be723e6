package client

import (
	"encoding/json"
	"fmt"

	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/netproto"
)

// newSetup returns the requests of a new connection that are answered before any call is written: the
// token and the description of the pool, if there are any, and a ping, which tells the server's
// limits. So calls go only to a server that is known to answer. mu is held.
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

// deliverSetup handles a reply to the setup. The first that is refused fails the connection. mu is held.
func (t *transport) deliverSetup(cl *call, body [][]byte) error {
	if err := cl.handle(body); err != nil {
		return err
	}
	if t.inFlight.settingUp--; t.inFlight.settingUp == 0 {
		t.outage.end()
		t.dialer.failures = 0
	}
	return nil
}

// setPool reads the reply to the description of the pool.
func (t *transport) setPool(frames [][]byte) error {
	if err := readStatus(frames); err != nil {
		return err
	}
	pool := new(api.Pool)
	if len(frames) != 2 || json.Unmarshal(frames[1], pool) != nil {
		return fmt.Errorf("%w: a pool without its JSON document", ErrReply)
	}
	if d := t.dialer; len(d.entries) > 1 && pool.Backend == "memory" {
		return fmt.Errorf("%w: %s keeps its blocks in memory, so each server of the list has others; give one address", ErrRequest, d.entries[d.at].address)
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
