package lookup

import (
	"errors"
	"fmt"
	"math"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/netproto"
)

// Errors of requests by anchors. The prompt must then be looked up by all its hashes.
var (
	// ErrNoAnchors is the error if this pool or backend is never served by anchors.
	ErrNoAnchors = fmt.Errorf("lookups by anchors are not served here: %w", ErrByHashes)
	errStride    = errors.New("wrong stride")

	// ErrByHashes is wrapped by refusals that every client that asks by anchors must
	// expect. They are not counted as failures.
	ErrByHashes = errors.New("look it up by its hashes")
)

// findAnchorStride returns how many raw hashes make a block of lookups by anchors: the
// stride of the full-attention group with the smallest blocks. It returns 0 and the
// reason if the chain of that group's blocks does not pass all positions of the others.
func findAnchorStride(sets []groupSet) (stride int, why error) {
	for i := range sets {
		if set := &sets[i]; set.full != 0 && (stride == 0 || set.stride < stride) {
			stride = set.stride
		}
	}
	if stride == 0 {
		return 0, fmt.Errorf("%w: no full-attention group", ErrNoAnchors)
	}
	for i := range sets {
		switch set := &sets[i]; {
		case set.chunkPositions > 1:
			return 0, fmt.Errorf("%w: every raw hash is looked up", ErrNoAnchors)
		case set.stride%stride != 0:
			return 0, fmt.Errorf("%w: blocks of %d and of %d hashes", ErrNoAnchors, stride, set.stride)
		}
	}
	return stride, nil
}

// blocksPerAlignment is how many blocks make the alignment: hits are multiples of it.
func blocksPerAlignment(c *coordinator.Coordinator, stride int) int {
	block := int64(stride) * int64(c.Pool().HashBlockSize)
	if a := c.Alignment(); a%block == 0 {
		return int(a / block)
	}
	return 1
}

// anchored is the additional state of a query by anchors. Its blocks have
// service.anchorStride hashes, and the query's limits are in these blocks.
//
// The proven blocks are always the first ones, and their presence is exact: the index
// follows the chain in front of an anchor along links that lookups have confirmed, and
// the hashes in the request are looked up. If the rules read no other block, the answer
// is that of the full lookup. docs/anchors.md has the proof.
type anchored struct {
	request *netproto.Anchors // valid until the message ends
	keys    []byte            // of the anchors
	present []bool            // by anchor
	trail   index.Trail
	cursor  index.Cursor // for the anchors themselves

	stage          traceStage
	at             int    // next anchor or run of the stage
	tracing        bool   // the trace of anchor at is suspended
	next           uint32 // next block of stageConfirm
	below          uint32 // of stageTrace: anchors from this block on are proven by those behind
	top            int    // last anchor whose chain reaches block 0, -1 if none
	retraced       bool   // stageTrace runs again, behind stageConfirm
	confirmedTo    int    // last anchor that stageConfirm has reached
	proven         int    // leading blocks whose presence is exact
	claimed        int    // leading blocks that digests in the request would prove
	stopConfirming bool   // the index confirms no further links
	before         []byte // the hash in front of the next one, in last; nil if unknown
	last           [netproto.MaxHashLen]byte
}

// BeginAnchors starts a query by anchors. r is valid, and not changed, until the answer.
// wanted is false if no hash can change it.
func (q *Query) BeginAnchors(r *netproto.Request) (wanted bool, err error) {
	s := q.service
	switch {
	case r.Anchors.NumHashes == 0: // it asks for the parameters
	case s.anchorsErr != nil:
		return false, s.anchorsErr
	case int(r.Anchors.Stride) != s.anchorStride:
		return false, fmt.Errorf("%w: blocks of %d hashes, they have %d here", errStride, r.Anchors.Stride, s.anchorStride)
	}
	if q.anchored == nil {
		q.anchored = new(anchored)
	}
	a := q.anchored
	a.request, a.stage, a.stopConfirming = &r.Anchors, stageKeys, false
	a.keys, a.present, a.before = a.keys[:0], a.present[:0], nil
	a.proven, a.claimed = 0, 0
	q.rawPerHash = s.anchorStride
	return q.Begin(r.NumTokens, r.Unaligned, r.HashLen, int(r.Anchors.NumHashes))
}

// AddAnchors looks up the next whole hashes of the request, borrowed until it returns:
// first those of the anchors, then those of consecutive blocks. It returns how many bytes of
// them it has consumed, and false when no further hash can change the answer. It consumes fewer
// than all if no work is left, and is then passed the others again.
func (q *Query) AddAnchors(hashes []byte) (consumed int, more bool) {
	if !q.active {
		return len(hashes), false
	}
	a := q.anchored
	if a.stage == stageKeys {
		want := a.request.Len()*q.hashLen - len(a.keys)
		consumed = min(want, len(hashes))
		a.keys = append(a.keys, hashes[:consumed]...)
		if consumed < want {
			return consumed, true
		}
		hashes = hashes[consumed:]
		q.beginTrace()
	}
	if !q.traceSome() {
		return consumed, true
	}
	return consumed + len(hashes), q.addBlocks(hashes)
}

// addBlocks looks up the hashes of consecutive blocks behind the proven ones. It returns false
// when no further hash can change the answer.
func (q *Query) addBlocks(hashes []byte) (more bool) {
	a := q.anchored
	if q.received != a.proven { // they do not follow the proven blocks
		return false
	}
	if len(hashes) == 0 {
		return true
	}
	number, before := uint32(q.received), a.before
	more = q.Add(hashes)
	a.proven = q.received
	if !a.stopConfirming && (number == 0 || before != nil) {
		all, work := q.service.index.Confirm(number, before, hashes, q.hashLen)
		*q.workLeft -= work
		a.stopConfirming = !all
	}
	a.before = a.last[:copy(a.last[:], hashes[len(hashes)-q.hashLen:])]
	return more
}

// checkAnchor lowers the limit if a full-attention group lacks the block of an anchor. c is
// the block's coverage, nil if it is not stored.
func (q *Query) checkAnchor(block uint32, c *index.Coverage) {
	for i := range q.scans {
		scan := &q.scans[i]
		end, stride := uint64(block)+1, uint64(scan.receivedStride)
		if scan.full == 0 || end%stride != 0 || end/stride > uint64(scan.positions) {
			continue
		}
		if c == nil || c.Complete&scan.full != scan.full {
			q.limit = min(q.limit, q.lookEnd(int(end-stride)))
		}
	}
}

// lookEnd is coordinator.LookEnd in received hashes.
func (q *Query) lookEnd(hash int) int {
	tokens := int64(q.rawPerHash * q.service.pool.HashBlockSize) // of a hash
	return int(min(q.service.coord.LookEnd(int64(hash)*tokens)/tokens, math.MaxInt))
}

// anchor returns the hash of anchor i.
func (a *anchored) anchor(q *Query, i int) []byte { return a.keys[i*q.hashLen : (i+1)*q.hashLen] }

// seek makes block first the next one to look up.
func (q *Query) seek(first int) {
	a := q.anchored
	q.received = first
	for i := range q.scans {
		q.scans[i].position = first / q.scans[i].receivedStride
	}
	for i := a.request.Len() - 1; i >= 0 && a.before == nil; i-- {
		if uint64(a.request.Number(i))+1 == uint64(first) {
			a.before = a.anchor(q, i)
		}
	}
}

// AnchorsAnswer is the answer to a query by anchors.
type AnchorsAnswer struct {
	Determined bool
	Hit        api.Hit // if determined
	// If not determined, in blocks: the presence of those below Proven is exact, digests
	// would prove those below Claimed, and none from End on can change the answer.
	Proven, Claimed, End uint32
}

// FinishAnchors returns the answer, or which blocks would decide it.
func (q *Query) FinishAnchors() (AnchorsAnswer, error) {
	q.workLeft = &q.unlimited
	answer, _, err := q.FinishAnchorsSome()
	return answer, err
}

// FinishAnchorsSome is FinishAnchors within the work that is left. If it returns false, the
// query is suspended, and the next call goes on.
func (q *Query) FinishAnchorsSome() (_ AnchorsAnswer, done bool, err error) {
	a := q.anchored
	if q.active && !q.ended {
		if a.stage == stageKeys { // the request has no hashes
			q.beginTrace()
		}
		if !q.traceSome() {
			return AnchorsAnswer{}, false, nil
		}
		if a.proven < q.limit {
			claimed := max(a.claimed, a.proven) // the end may be below it if a block turned out to be missing
			return AnchorsAnswer{Proven: uint32(a.proven), Claimed: uint32(claimed), End: uint32(max(q.anchorsEnd(), claimed))}, true, nil
		}
	}
	hit, done, err := q.FinishSome()
	if done && err == nil {
		q.service.index.Use(&a.trail)
	}
	return AnchorsAnswer{Determined: true, Hit: hit}, done, err
}

// anchorsEnd returns the block behind the last that can change the answer, the missing one
// included. A request with their hashes needs no anchor behind it.
func (q *Query) anchorsEnd() int {
	stride := 1
	for i := range q.scans {
		if scan := &q.scans[i]; scan.full != 0 {
			stride = max(stride, scan.receivedStride)
		}
	}
	return min(q.limit+stride, q.numHashes/q.rawPerHash)
}

// release drops what belongs to the request and to the index.
func (a *anchored) release() {
	a.request = nil
	a.trail.Drop()
	if cap(a.keys) > keptAnchorBytes {
		a.keys, a.present = nil, nil
	}
}

// keptAnchorBytes is the buffer in bytes that a pooled query keeps for the hashes of
// anchors: those of a prompt of 131,072 hashes of 32 bytes take a third.
const keptAnchorBytes = 32 << 10

// AnchorsParams returns how many raw hashes make a block of lookups by anchors, and how
// many blocks hits are multiples of. It returns 0 and 0 if anchors are not served.
func (s *Service) AnchorsParams() (stride, unit uint32) {
	return uint32(s.anchorStride), uint32(s.anchorUnit)
}

// AnchorsError returns why lookups by anchors are not served, an ErrNoAnchors, or nil.
func (s *Service) AnchorsError() error { return s.anchorsErr }
