package server

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hitline/hitline/backend"
	"github.com/hitline/hitline/bufpool"
	"github.com/hitline/hitline/lookup/internal/monotime"
	"github.com/hitline/hitline/netproto"
)

// flights are the requests of one connection over a remote backend that have no
// reply yet.
//
// A request takes off when those before it that must not be overtaken have landed:
// a change of what is stored waits for all, anything else for changes only. It
// lands when a worker has its answer. Its reply is written on the event loop,
// where order and the bound on unsent replies are kept, when those of equal
// envelopes before it are.
type flights struct {
	current *flight   // its blob is being received
	waiting []*flight // to take off, in order of arrival
	asking  int       // in the air: lookups and explains
	writing int       // in the air: changes, one at most
	asks    line      // of those in the air, what waits for a worker
	writes  line
	last    map[string]*flight
	held    int    // bytes of payloads that wait for replies of equal envelopes
	wake    func() // makes the event loop call session.woken; from any goroutine

	mu      sync.Mutex
	arrived []*flight // landed, and unknown to the event loop
	closed  bool      // the connection is gone

	lost context.Context // ends then
	lose context.CancelFunc
}

func newFlights() *flights {
	fl := &flights{last: map[string]*flight{}}
	fl.lost, fl.lose = context.WithCancel(context.Background())
	return fl
}

// land hands a flight back to its event loop.
func (fl *flights) land(f *flight) {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	if fl.closed {
		return
	}
	fl.arrived = append(fl.arrived, f)
	if len(fl.arrived) == 1 {
		fl.wake() // under the lock: the connection is not released before it is closed here
	}
}

// take returns what has landed since the last call.
func (fl *flights) take() []*flight {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	arrived := fl.arrived
	fl.arrived = nil
	return arrived
}

// beginRemote is Begin over a backend.
func (s *session) beginRemote(q *netproto.Request) bool {
	f := s.newFlight(q)
	s.flights.current = f
	if f.err = s.prepare(f, q); f.err != nil || f.need == 0 {
		return false
	}
	if f.err = s.crowded(); f.err != nil {
		f.refused = true
		return false
	}
	if s.server.remote.Down() {
		f.reject(backend.ErrUnavailable)
		return false
	}
	return true
}

func (s *session) newFlight(q *netproto.Request) *flight {
	return &flight{session: s, tag: q.Tag, place: q.Place, hashLen: q.HashLen, numHashes: q.NumHashes}
}

// prepare checks a request that has hashes and finds out how many it needs.
func (s *session) prepare(f *flight, q *netproto.Request) (err error) {
	service := s.server.service
	if f.tag == netproto.TagAnchors {
		if q.Anchors.NumHashes == 0 {
			return nil // it asks for the parameters
		}
		return service.AnchorsServed()
	}
	if f.changes() {
		f.need = q.NumHashes * q.HashLen
		return service.CheckPlace(q.Place)
	}
	if err := s.checkHashes(q); err != nil {
		return err
	}
	var n int
	f.numTokens, n, err = s.server.remote.Needed(q.NumTokens, q.Unaligned, q.NumHashes)
	f.need = n * q.HashLen
	return err
}

// crowded returns why the connection gets no further request in flight.
func (s *session) crowded() error {
	limits := &s.server.cfg.Limits
	switch {
	case int(s.inFlight.Load()) >= limits.MaxInFlight:
		return fmt.Errorf("%w: %d", ErrInFlight, limits.MaxInFlight)
	case s.flights.held > limits.MaxUnsent:
		return fmt.Errorf("%w: %d bytes of replies", ErrInFlight, s.flights.held)
	}
	return nil
}

// endRemote is End over a backend.
func (s *session) endRemote(q *netproto.Request) {
	f := s.flights.current
	s.flights.current = nil
	if f == nil {
		f = s.newFlight(q)
	}
	if q.Problem != nil {
		f.err, f.refused = q.Problem, false
	}
	if err := s.crowded(); err != nil { // whatever else is wrong: see enter
		f.err, f.refused = err, true
	}
	f.envelope, f.began = bytes.Clone(q.Envelope), s.began
	if !s.enter(f) {
		f.release()
		return
	}
	switch {
	case f.err != nil || f.closed:
		s.done(f)
	case q.Tag == netproto.TagPing:
		f.payload = bytes.Clone(q.Echo)
		s.done(f)
	case q.Tag == netproto.TagAnchors:
		s.done(f)
	case q.Tag == netproto.TagLookup && f.hashes == nil:
		s.server.remote.Count(0, 0, 0)
		s.done(f)
	default:
		s.flights.waiting = append(s.flights.waiting, f)
		if s.takeOff(); f.asks() && f.deadline.IsZero() {
			timeout := s.server.remote.Config().Timeout
			f.deadline = time.Now().Add(timeout)
			time.AfterFunc(timeout, s.flights.nudge)
		}
	}
}

// nudge has the event loop look at what waits.
func (fl *flights) nudge() {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	if !fl.closed {
		fl.wake()
	}
}

// expire answers the lookups whose time is up before they could take off, behind a
// change that takes long.
func (s *session) expire() {
	fl, now := s.flights, time.Now()
	var late []*flight
	fl.waiting = slices.DeleteFunc(fl.waiting, func(f *flight) bool {
		is := f.asks() && !f.deadline.IsZero() && !f.deadline.After(now)
		if is {
			late = append(late, f)
		}
		return is
	})
	for _, f := range late {
		if f.release(); s.gone == nil {
			f.late()
			s.done(f)
		}
	}
}

// enter puts a flight behind those with an equal envelope. A refusal behind
// another one only raises a number, so that a peer cannot make us keep more of
// them than it may have requests in flight; false says that this was done.
func (s *session) enter(f *flight) bool {
	fl := s.flights
	last := fl.last[string(envelopeKey(f.envelope))]
	if last != nil && last.refused && f.refused {
		last.repeat++
		return false
	}
	if last != nil {
		last.next, f.behind = f, true
	}
	fl.last[string(envelopeKey(f.envelope))] = f
	s.inFlight.Add(1)
	s.server.flying.Add(1)
	return true
}

// envelopeKey is what envelopes are compared by: none and the bare delimiter are
// equal.
func envelopeKey(envelope []byte) []byte {
	if len(envelope) == len(bareDelimiter) && string(envelope) == bareDelimiter {
		return nil
	}
	return envelope
}

var bareDelimiter = string(netproto.AppendFrameHeader(nil, 0, true))

// takeOff hands to the workers what may start.
func (s *session) takeOff() {
	fl := s.flights
	for len(fl.waiting) > 0 && s.gone == nil {
		f := fl.waiting[0]
		if fl.writing > 0 || f.changes() && fl.asking > 0 {
			return
		}
		fl.waiting[0] = nil
		fl.waiting = fl.waiting[1:]
		s.start(f)
	}
}

func (s *session) start(f *flight) {
	cfg, timeout, count := s.server.remote.Config(), time.Duration(0), &s.flights.asking
	switch {
	case f.tag == netproto.TagStat: // only keeps its place
		s.done(f)
		return
	case f.changes():
		timeout, count = cfg.WriteTimeout, &s.flights.writing
	default:
		timeout = cfg.Timeout
	}
	if f.deadline.IsZero() { // it has not waited
		f.deadline = time.Now().Add(timeout)
	}
	if !s.server.crews.submit(f) {
		f.reject(fmt.Errorf("%w: %d", ErrBusy, cfg.Queue))
		f.release()
		s.done(f)
		return
	}
	*count++
}

// woken is called on the event loop when flights have landed, or when somebody
// wants to know how much is unsent. It reports like receive.
func (s *session) woken() error {
	s.noteUnsent()
	if s.flights == nil {
		return nil
	}
	s.out = bufpool.Get()
	arrived := s.flights.take()
	if len(arrived) > 0 {
		s.lastActive.Store(monotime.Now()) // idle begins now
	}
	for _, f := range arrived {
		if s.gone != nil {
			break
		}
		if f.changes() {
			s.flights.writing--
		} else {
			s.flights.asking--
		}
		s.done(f)
	}
	s.expire()
	s.takeOff()
	s.send(0)
	s.out.Release()
	s.out = nil
	return s.gone
}

// done marks a flight as answered and writes the replies whose turn it is.
func (s *session) done(f *flight) {
	f.release()
	f.landed = true
	if f.behind {
		s.flights.held += len(f.payload)
		return
	}
	for f.landed && s.gone == nil {
		if f.next == nil {
			delete(s.flights.last, string(envelopeKey(f.envelope)))
		}
		s.answer(f)
		if f = f.next; f == nil {
			return
		}
		f.behind = false
		if f.landed {
			s.flights.held -= len(f.payload)
		}
	}
}

// answer appends the reply to a flight, and its repetitions.
func (s *session) answer(f *flight) {
	s.inFlight.Add(-1)
	s.server.flying.Add(-1)
	if f.tag == netproto.TagStat && f.err == nil {
		f.payload, f.err = encodeJSON(s.server.Stat())
	}
	for range 1 + f.repeat {
		switch {
		case s.gone != nil:
			return
		case f.err != nil:
			s.appendFailed(f.envelope, f.err)
		case f.tag == netproto.TagLookup:
			s.out.B = netproto.AppendHit(s.out.B, f.envelope, f.hit)
			s.meter.took(max(monotime.Now()-f.began, 0), 1)
			s.meter.asked(f.numHashes)
		case f.tag == netproto.TagAnchors:
			s.appendAnchorsParams(f.envelope)
		default:
			s.out.B = netproto.AppendDone(s.out.B, f.envelope, f.payload)
		}
		s.send(flushAt)
	}
}

// ground gives back what the flights of a connection hold that is gone. Those in
// the air come down by themselves: changes when they are done, the others at once,
// unless lookups of other connections share their answer.
func (s *session) ground() {
	fl := s.flights
	if fl == nil {
		return
	}
	fl.mu.Lock()
	fl.closed, fl.arrived = true, nil
	fl.mu.Unlock()
	fl.lose()
	if fl.current != nil {
		fl.current.release()
	}
	for _, f := range fl.waiting {
		f.release()
	}
	fl.current, fl.waiting = nil, nil
	clear(fl.last)
	s.server.flying.Add(-s.inFlight.Swap(0))
}
