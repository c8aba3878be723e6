package tokens

import "container/list"

// request is one prompt of one asker, whose asks are accounted for together. It is open until askGap has passed without an ask.
type request struct {
	key    requestKey
	number uint32 // of its account; none that is remembered has the same
	began  int64
	asked  int64 // when it was last asked
	marked int64 // when its blocks were last marked, 0 for never

	known    known // at its first ask that was read
	measured bool  // its blocks are in the curve

	last    last // ask
	element *list.Element
}

// requestKey tells requests apart.
type requestKey struct {
	asker     string
	numTokens int64
	lastHash  uint64 // its fingerprint
}

// last is what the last ask of a request found.
type last struct {
	prompt   Prompt
	answered bool
	hit      int64
	found    int
	end      int   // the block that ends the hit
	place    Place // of what is lost, if something is; NumPlaces if nothing is remembered of the block that ends the hit
	missing  Missing
}

// lastOf returns what an ask found, without its place.
func lastOf(r *Event) last {
	l := last{prompt: r.Prompt, answered: r.Answered, hit: r.Hit, found: r.Found, end: r.end(), place: NumPlaces}
	if r.Answered {
		l.missing = r.Missing
	}
	return l
}

// equals reports whether an ask found the same as the last one.
func (l *last) equals(r *Event) bool {
	return l.prompt == r.Prompt && l.answered == r.Answered && l.hit == r.Hit && l.found == r.Found
}

// openRequests are the open requests of an account, in the order of their last asks.
type openRequests struct {
	byKey map[requestKey]*request
	order *list.List
}

func newOpenRequests() openRequests {
	return openRequests{byKey: map[requestKey]*request{}, order: list.New()}
}

func (o *openRequests) len() int { return len(o.byKey) }

func (o *openRequests) get(key requestKey) *request { return o.byKey[key] }

// oldest returns the request whose last ask is the longest ago, nil if none is open.
func (o *openRequests) oldest() *request {
	if e := o.order.Front(); e != nil {
		return e.Value.(*request)
	}
	return nil
}

func (o *openRequests) add(key requestKey, number uint32, now int64) *request {
	req := &request{key: key, number: number, began: now, asked: now}
	req.element = o.order.PushBack(req)
	o.byKey[key] = req
	return req
}

func (o *openRequests) touch(req *request, now int64) {
	req.asked = now
	o.order.MoveToBack(req.element)
}

func (o *openRequests) remove(req *request) {
	o.order.Remove(req.element)
	delete(o.byKey, req.key)
}
