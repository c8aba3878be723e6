package lookup

import (
	"errors"
	"fmt"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/netproto"
)

// Why a request by anchors is answered 00: the prompt must be looked up by all of
// its hashes.
var (
	// ErrNoAnchors says that this pool or backend is not served by anchors at all.
	ErrNoAnchors  = fmt.Errorf("lookups by anchors are not served here: %w", ErrByHashes)
	errPartlyHeld = fmt.Errorf("some ranks hold a block that others lack: %w", ErrByHashes)
	errStride     = errors.New("wrong stride")

	// ErrByHashes is what a client that asks by anchors has to expect: it is no failure.
	ErrByHashes = errors.New("look it up by its hashes")
)

// anchorStride returns how many raw hashes make a block of lookups by anchors: the
// stride of the full-attention group with the smallest blocks. It is 0 with the
// reason where the chain of that group's blocks does not lead past all positions
// that are asked.
func anchorStride(sets []groupSet) (stride int, why error) {
	for i := range sets {
		if l := &sets[i]; l.full != 0 && (stride == 0 || l.stride < stride) {
			stride = l.stride
		}
	}
	if stride == 0 {
		return 0, fmt.Errorf("%w: no full-attention group", ErrNoAnchors)
	}
	for i := range sets {
		switch l := &sets[i]; {
		case l.chunkPositions > 1:
			return 0, fmt.Errorf("%w: every raw hash is asked", ErrNoAnchors)
		case l.stride%stride != 0:
			return 0, fmt.Errorf("%w: blocks of %d and of %d hashes", ErrNoAnchors, stride, l.stride)
		}
	}
	return stride, nil
}

// anchorUnit is how many blocks make the alignment: hits are multiples of it.
func anchorUnit(c *coordinator.Coordinator, stride int) int {
	block := int64(stride) * int64(c.Pool().HashBlockSize)
	if a := c.Alignment(); a%block == 0 {
		return int(a / block)
	}
	return 1
}

// anchored is what a query by anchors has beside that of a lookup. Its blocks are
// of service.anchorStride hashes, as the query's limits are while it is by anchors.
//
// What is known is exact, and always about the blocks from 0 on: the index follows
// the chain in front of an anchor, along links that lookups have confirmed, and
// what the request holds as hashes is looked up. If that is all that the rules look
// at, the answer is the full lookup's.
type anchored struct {
	request *netproto.Anchors // valid until the message ends
	keys    []byte            // of the anchors
	present []bool            // by anchor
	trail   index.Trail
	cursor  index.Cursor // for the anchors themselves

	traced         bool   // the anchors have been looked at
	proven         int    // blocks whose presence is known
	claimed        int    // blocks that would be known had the request held digests
	partlyHeld     bool   // of some block ranks must be summed: see rankSums
	stopConfirming bool   // nothing is to be confirmed any more
	before         []byte // the hash in front of the next one; in last
	last           [netproto.MaxHashLen]byte
}

// BeginAnchors starts a query by anchors. r is valid, and not changed, until the answer.
// wanted is false if no hash can change it.
func (q *Query) BeginAnchors(r *netproto.Request) (wanted bool, err error) {
	s := q.service
	switch {
	case r.Anchors.NumHashes == 0: // it asks for the parameters
	case s.noAnchors != nil:
		return false, s.noAnchors
	case int(r.Anchors.Stride) != s.anchorStride:
		return false, fmt.Errorf("%w: blocks of %d hashes, they have %d here", errStride, r.Anchors.Stride, s.anchorStride)
	}
	if q.anchored == nil {
		q.anchored = new(anchored)
	}
	a := q.anchored
	a.request, a.traced, a.partlyHeld, a.stopConfirming = &r.Anchors, false, false, false
	a.keys, a.present, a.before = a.keys[:0], a.present[:0], nil
	a.proven, a.claimed = 0, 0
	q.unit = s.anchorStride
	return q.Begin(r.NumTokens, r.Unaligned, r.HashLen, int(r.Anchors.NumHashes))
}

// AddAnchors takes the next whole hashes of the request: first those of the
// anchors, then those of consecutive blocks. It returns false when no further one
// can change the answer.
func (q *Query) AddAnchors(hashes []byte) bool {
	if !q.active {
		return false
	}
	a := q.anchored
	if !a.traced {
		want := a.request.Len()*q.hashLen - len(a.keys)
		n := min(want, len(hashes))
		a.keys = append(a.keys, hashes[:n]...)
		if n < want {
			return true
		}
		hashes = hashes[n:]
		q.traceAnchors()
	}
	if q.raw != a.proven { // they are not the blocks behind the known ones
		return false
	}
	if len(hashes) == 0 {
		return true
	}
	number, before := uint32(q.raw), a.before
	more := q.Add(hashes)
	a.proven = q.raw
	if !a.stopConfirming && (number == 0 || before != nil) {
		a.stopConfirming = !q.service.index.Confirm(number, before, hashes, q.hashLen)
	}
	a.before = a.last[:copy(a.last[:], hashes[len(hashes)-q.hashLen:])]
	return more
}

// traceAnchors finds out what the index knows by the anchors.
func (q *Query) traceAnchors() {
	a := q.anchored
	a.traced = true
	q.probeAnchors()
	top := q.traceDown()
	if q.confirmUp(top) > top {
		top = q.traceDown()
	}
	for i := len(a.trail.Runs) - 1; top >= 0 && i >= 0; i-- {
		q.applyTrail(a.trail.Runs[i])
	}
	a.trail.Taken()
	q.startBehind(int(a.request.First))
}

// probeAnchors looks up the anchors themselves: where a full-attention group lacks
// one, nothing far behind it matters.
func (q *Query) probeAnchors() {
	a := q.anchored
	a.cursor.Quiet = true
	q.service.index.Begin(&a.cursor, q.hashLen)
	for keys := a.keys; len(keys) > 0; {
		filled, covered, _ := q.service.index.Probe(&a.cursor, keys, 1, q.runs[:], false)
		for _, run := range q.runs[:filled] {
			for range run.N {
				q.checkAnchor(a.request.Number(len(a.present)), run.Coverage)
				a.present = append(a.present, run.Coverage != nil)
			}
		}
		keys = keys[covered*q.hashLen:]
	}
	a.cursor.Drop()
}

func (q *Query) checkAnchor(block uint32, c *index.Coverage) {
	for i := range q.scans {
		l := &q.scans[i]
		at := (int(block)+1)/l.step - 1
		if l.full == 0 || (int(block)+1)%l.step != 0 || at >= l.positions {
			continue
		}
		q.checkPartlyHeld(l, c)
		if c == nil || c.Complete&l.full != l.full {
			q.limit = min(q.limit, q.lookEnd(at*l.step))
		}
	}
}

// lookEnd is coordinator.LookEnd in hashes that are received.
func (q *Query) lookEnd(hash int) int {
	tokens := int64(q.unit * q.service.pool.HashBlockSize) // of a hash
	return int(q.service.coord.LookEnd(int64(hash)*tokens) / tokens)
}

// checkPartlyHeld notes that ranks would have to be summed over equal hashes, not all
// of which are here.
func (q *Query) checkPartlyHeld(l *groupScan, c *index.Coverage) {
	if c == nil || !q.service.sumsRanks() {
		return
	}
	for _, g := range l.groups {
		if c.Complete>>g&1 == 0 && c.Counts[g] > 0 {
			q.anchored.partlyHeld = true
		}
	}
}

// traceDown follows the chain of the last anchor that can be followed all the way
// down, and returns which one that is, -1 if there is none.
func (q *Query) traceDown() int {
	a := q.anchored
	below := uint32(min(q.limit, q.numHashes))
	for i := a.request.Len() - 1; i >= 0; i-- {
		number := a.request.Number(i)
		if !a.present[i] || number >= below {
			continue
		}
		if below = q.service.index.Trace(&a.trail, a.anchor(q, i), number); below == 0 {
			a.proven = int(number) + 1
			a.claimed = max(a.claimed, a.proven)
			return i
		}
	}
	a.proven = 0
	return -1
}

func (a *anchored) anchor(q *Query, i int) []byte { return a.keys[i*q.hashLen : (i+1)*q.hashLen] }

// confirmUp goes on from an anchor, -1 for the beginning, to those above it along
// links that no lookup has confirmed. Where the request's digests show them to be
// right they are confirmed. It returns how far that came.
func (q *Query) confirmUp(from int) (to int) {
	a := q.anchored
	to = from
	var before []byte
	for i, next := from+1, uint32(a.proven); i < a.request.Len(); i++ {
		number := a.request.Number(i)
		if !a.present[i] || int(number) >= q.limit {
			break
		}
		if i > 0 {
			before = a.anchor(q, i-1)
		}
		keys, ok := q.service.index.Recite(&a.trail, before, a.anchor(q, i), number, int(number-next)+1)
		if !ok {
			break
		}
		if digest, given := a.request.Digest(i); given {
			if digest != netproto.Digest(keys) {
				break
			}
			q.service.index.Confirm(next, before, keys, q.hashLen)
			to = i
		}
		next = number + 1
		a.claimed = int(next)
	}
	return to
}

// applyTrail takes in what the index knows of consecutive blocks.
func (q *Query) applyTrail(run index.TrailRun) {
	for i := range q.scans {
		l := &q.scans[i]
		q.checkPartlyHeld(l, run.Coverage)
		if q.anchored.partlyHeld {
			return
		}
		from := int64(int(run.From) / l.step)
		to := min(int64(int(run.From+run.N)/l.step), int64(l.positions))
		for from < to {
			start, end, ok := l.mask.Next(from)
			if !ok || start >= to {
				break
			}
			from = min(end, to)
			l.at = int(start)
			q.apply(l, index.Run{N: int(from - start), Coverage: run.Coverage}, nil)
		}
	}
}

// startBehind prepares for the hashes of the blocks from first on.
func (q *Query) startBehind(first int) {
	a := q.anchored
	q.raw = first
	for i := range q.scans {
		q.scans[i].at = first / q.scans[i].step
	}
	for i := a.request.Len() - 1; i >= 0 && a.before == nil; i-- {
		if int(a.request.Number(i))+1 == first {
			a.before = a.anchor(q, i)
		}
	}
}

// AnchorsAnswer is what a query by anchors came to.
type AnchorsAnswer struct {
	Determined bool
	Hit        api.Hit // if determined
	// Otherwise, in blocks: presence is known of those below Proven, would be of those
	// below Claimed if the request had held digests, and nothing from End on matters.
	Proven, Claimed, End uint32
}

// FinishAnchors returns the answer, or which blocks would decide it.
func (q *Query) FinishAnchors() (AnchorsAnswer, error) {
	a := q.anchored
	if q.active {
		if !a.traced {
			q.traceAnchors() // there were no hashes
		}
		for i := range q.scans {
			a.partlyHeld = a.partlyHeld || q.scans[i].partial
		}
		if a.partlyHeld {
			return AnchorsAnswer{}, errPartlyHeld
		}
		if a.proven < q.limit {
			claimed := max(a.claimed, a.proven) // above the end where a block below it turned out to be missing
			return AnchorsAnswer{Proven: uint32(a.proven), Claimed: uint32(claimed), End: uint32(max(q.end(), claimed))}, nil
		}
	}
	hit, err := q.Finish()
	if err == nil {
		q.service.index.Use(&a.trail)
	}
	return AnchorsAnswer{Determined: true, Hit: hit}, err
}

// end is the block behind the last of those that are still of interest, the one
// that is missing included: a request with their hashes needs no anchor above.
func (q *Query) end() int {
	step := 1
	for i := range q.scans {
		if l := &q.scans[i]; l.full != 0 {
			step = max(step, l.step)
		}
	}
	return min(q.limit+step, q.numHashes/q.unit)
}

// drop gives back what a query by anchors holds.
func (a *anchored) drop() {
	a.request = nil
	a.trail.Drop()
	if cap(a.keys) > keptAnchorBytes {
		a.keys, a.present = nil, nil
	}
}

// keptAnchorBytes is the buffer in bytes that a pooled query keeps for the hashes of
// anchors: those of a prompt of 131,072 hashes of 32 bytes take a third.
const keptAnchorBytes = 32 << 10

// AnchorParams returns how many raw hashes make a block of lookups by anchors and of how
// many blocks hits are multiples; 0 and 0 where anchors are not served.
func (s *Service) AnchorParams() (stride, unit uint32) {
	return uint32(s.anchorStride), uint32(s.anchorUnit)
}

// AnchorsError returns why lookups by anchors are not served, an ErrNoAnchors, or nil.
func (s *Service) AnchorsError() error { return s.noAnchors }
