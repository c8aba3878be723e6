package client

import (
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/netproto"
)

// flight is the requests in flight on a connection, and how many the server takes. A request's
// slot and its generation are its id.
type flight struct {
	slots     []slot
	free      []uint32 // indexes of the slots that are not in use
	bytes     int64    // of the requests in flight
	settingUp int      // requests of the setup without a reply
	limits    api.Limits
}

// slot holds one request in flight.
type slot struct {
	call       *call // nil if the slot is free or the call was abandoned
	tag        netproto.Tag
	size       int64
	generation uint32 // incremented each time the slot is reused
	inUse      bool
}

// defaultLimits are kept until the server has told its own, or if it does not.
var defaultLimits = api.Limits{MaxInFlight: 64, MaxInFlightBytes: 1 << 20}

// len returns the number of requests in flight.
func (f *flight) len() int { return len(f.slots) - len(f.free) }

// fits reports whether a request may be sent now. A request larger than all that may be in flight
// is sent alone.
func (f *flight) fits(cl *call) bool {
	n := f.len()
	return n == 0 || n < f.limits.MaxInFlight && f.bytes+cl.size() <= f.limits.MaxInFlightBytes
}

// setLimits sets what the server has told of itself.
func (f *flight) setLimits(l api.Limits) {
	if l.MaxInFlight > 0 {
		f.limits.MaxInFlight = l.MaxInFlight
	}
	if l.MaxInFlightBytes > 0 {
		f.limits.MaxInFlightBytes = l.MaxInFlightBytes
	}
}

// add gives a call a slot and returns its index.
func (f *flight) add(cl *call) uint32 {
	var i uint32
	if n := len(f.free); n > 0 {
		i, f.free = f.free[n-1], f.free[:n-1]
	} else {
		i = uint32(len(f.slots))
		f.slots = append(f.slots, slot{})
	}
	s := &f.slots[i]
	s.call, s.tag, s.size, s.inUse = cl, cl.tag, cl.size(), true
	s.generation++
	f.bytes += s.size
	return i
}

// find returns whether a request of this id is in flight.
func (f *flight) find(i, generation uint32) bool {
	return int64(i) < int64(len(f.slots)) && f.slots[i].inUse && f.slots[i].generation == generation
}

// remove frees a slot and returns its call, nil if that was abandoned.
func (f *flight) remove(i uint32) *call {
	s := &f.slots[i]
	cl := s.call
	f.bytes -= s.size
	s.call, s.inUse = nil, false
	f.free = append(f.free, i)
	return cl
}

// abandon keeps the slot of a call, which the server will still answer, without the call.
func (f *flight) abandon(cl *call) {
	if s := &f.slots[cl.slot]; s.call == cl {
		s.call = nil
	}
}

// removeAll frees all slots and returns their calls.
func (f *flight) removeAll() (calls []*call) {
	for i := range f.slots {
		if !f.slots[i].inUse {
			continue
		}
		if cl := f.remove(uint32(i)); cl != nil {
			calls = append(calls, cl)
		}
	}
	f.settingUp = 0
	return calls
}
