package client

// slot holds one request in flight. Its index and generation are the request's id.
type slot struct {
	call       *call  // nil if the slot is free or the call was abandoned
	generation uint32 // incremented each time the slot is reused
	inUse      bool
}

// maxInFlight bounds the requests in flight on a connection. It is the default of
// server.Limits.MaxInFlight.
const maxInFlight = 1024

// available returns how many more requests may be in flight. mu is held.
func (p *pipe) available() int { return maxInFlight - p.inFlight() }

// inFlight returns the number of requests that are sent and not answered. mu is held.
func (p *pipe) inFlight() int { return len(p.slots) - len(p.free) }

// allocSlot allocates a slot for a call and returns its index. mu is held.
func (p *pipe) allocSlot(cl *call) uint32 {
	if len(p.free) == 0 {
		p.slots = append(p.slots, slot{call: cl, inUse: true})
		return uint32(len(p.slots) - 1)
	}
	i := p.free[len(p.free)-1]
	p.free = p.free[:len(p.free)-1]
	s := &p.slots[i]
	s.call, s.inUse = cl, true
	s.generation++
	return i
}

// freeSlot frees a slot and returns its call, nil if that was abandoned. mu is held.
func (p *pipe) freeSlot(i uint32) *call {
	s := &p.slots[i]
	cl := s.call
	s.call, s.inUse = nil, false
	p.free = append(p.free, i)
	return cl
}
