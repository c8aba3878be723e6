package lookup

import (
	"math"

	"github.com/hitline/hitline/bufpool"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/lookup/api"
)

// runsPerProbe is how many runs one call of the index reports: chains are one or
// two runs, so this is rarely filled, and its 1 KiB stays in the query.
const runsPerProbe = 64

// Query is one lookup under way over the memory index: hashes go in as they arrive and
// become presence bits at once. Queries are pooled; one belongs to one goroutine from
// NewQuery to Release.
type Query struct {
	service   *Service
	numTokens int64
	tokenLen  int64 // numTokens as the rules see it
	hashLen   int
	numHashes int
	active    bool // Begin found something to look up
	explain   bool // set before Begin: see explain.go
	// unit, set before Begin, is how many raw hashes stand behind one hash that is
	// received: 1, but in a query by anchors.
	unit     int
	anchored *anchored // of queries by anchors, nil before the first

	raw   int // hashes received so far, or passed over
	limit int // hashes that can still change the answer, counted likewise
	scans []groupScan
	words []*bufpool.Words // bitset of each group, nil outside a lookup

	presence coordinator.Presence
	partly   coordinator.Presence // blocks held by a part of their ranks; for explain
	scratch  coordinator.Scratch
	rankSums rankSums
	runs     [runsPerProbe]index.Run
}

// groupScan is a query's walk along one group set.
type groupScan struct {
	*groupSet
	step      int // its stride in hashes that are received
	cursor    index.Cursor
	at        int  // next position
	positions int  // positions that the lookup covers
	partial   bool // some position is held by a part of its ranks
}

// NewQuery returns a query, which must be released. It must not be called over a backend.
func (s *Service) NewQuery() *Query { return s.queries.Get().(*Query) }

func newQuery(s *Service) *Query {
	q := &Query{service: s, unit: 1, scans: make([]groupScan, len(s.groupSets)), words: make([]*bufpool.Words, s.coord.NumGroups())}
	for i := range s.groupSets {
		q.scans[i].groupSet = &s.groupSets[i]
	}
	q.presence.Bits = make([][]uint64, s.coord.NumGroups())
	q.partly.Bits = make([][]uint64, s.coord.NumGroups())
	return q
}

// BeginExplain is Begin for Explanation: nothing is counted or touched.
func (q *Query) BeginExplain(numTokens uint64, unaligned bool, hashLen, numHashes int) (wanted bool, err error) {
	q.explain = true
	return q.Begin(numTokens, unaligned, hashLen, numHashes)
}

// Begin starts a lookup of numHashes hashes of hashLen bytes. unaligned says that
// the number of tokens, which may have been too large for 64 bits, is not a
// multiple of the alignment. wanted is false if no hash can change the answer.
func (q *Query) Begin(numTokens uint64, unaligned bool, hashLen, numHashes int) (wanted bool, err error) {
	s := q.service
	q.numTokens = s.clampTokens(numTokens, unaligned)
	q.hashLen, q.numHashes, q.raw, q.limit = hashLen, numHashes, 0, 0
	q.active = false
	if numHashes == 0 || q.numTokens == 0 {
		return false, nil // answered 0 before anything is checked
	}
	if q.tokenLen, err = s.coord.TokenLen(q.numTokens); err != nil {
		return false, err
	}
	q.active = true
	for i := range q.scans {
		l := &q.scans[i]
		l.at, l.partial, l.step = 0, false, l.stride/q.unit
		l.positions = s.coord.Positions(l.groups[0], q.tokenLen, numHashes)
		q.limit = max(q.limit, l.positions*l.step)
		l.cursor.Quiet = q.explain
		s.index.Begin(&l.cursor, hashLen)
		q.growBits(l, min(l.positions, initialPositions))
	}
	return true, nil
}

// initialPositions is for how many positions of a group set there is room from the start on. A
// peer announces its hashes in a few bytes; beyond that, room comes with the hashes.
const initialPositions = 1 << 14

// growBits makes the bitsets of a group set's groups hold so many positions or more. The
// rules take bits that are not there for absent.
func (q *Query) growBits(l *groupScan, positions int) {
	for _, g := range l.groups {
		have := q.words[g]
		if have != nil && positions <= 64*len(have.W) {
			return // as in the other groups
		}
		if have != nil {
			positions = min(max(positions, 128*len(have.W)), l.positions)
		}
		q.words[g] = bufpool.GetWords((positions + 63) / 64)
		if have != nil {
			copy(q.words[g].W, have.W)
			have.Release()
		}
		q.presence.Bits[g] = q.words[g].W
		if q.explain {
			q.partly.Bits[g] = append(make([]uint64, 0, len(q.words[g].W)), q.partly.Bits[g]...)[:len(q.words[g].W)]
		}
	}
}

// Add takes the next whole hashes, borrowed until it returns. It returns false
// when no further hash can change the answer.
func (q *Query) Add(hashes []byte) bool {
	if !q.active {
		return false
	}
	n := len(hashes) / q.hashLen
	more := false
	for i := range q.scans {
		l := &q.scans[i]
		q.walk(l, hashes, n)
		more = more || l.at < q.bound(l)
	}
	q.raw += n
	return more
}

// bound is the position at which a group set's walk ends: behind the limit only while
// equal hashes may still add up.
func (q *Query) bound(l *groupScan) int {
	if l.partial {
		return l.positions
	}
	return min(l.positions, q.limit/l.step)
}

// walk probes the asked positions of a group set whose hashes are among the n at hand.
func (q *Query) walk(l *groupScan, hashes []byte, n int) {
	for {
		start, end, ok := l.mask.Next(int64(l.at))
		bound := int64(q.bound(l))
		if !ok || start >= bound {
			l.at = int(bound)
			return
		}
		end = min(end, bound)
		l.at = int(start)
		first := l.at*l.step + l.step - 1 - q.raw // among the hashes at hand
		if first >= n {
			return
		}
		count := min(int(end-start), (n-1-first)/l.step+1)
		from := first * q.hashLen
		to := (first + (count-1)*l.step + 1) * q.hashLen
		q.probe(l, hashes[from:to])
	}
}

// probe asks the index for consecutive positions of a group set and takes in the
// first runs of its answer.
func (q *Query) probe(l *groupScan, keys []byte) {
	stop := l.full != 0 && l.chunkPositions == 1 && !l.partial
	filled, _, clean := q.service.index.Probe(&l.cursor, keys, l.step, q.runs[:], stop)
	if !clean {
		q.clearBits()
	}
	for _, run := range q.runs[:filled] {
		if l.at >= q.bound(l) {
			return
		}
		q.apply(l, run, keys)
		keys = keys[min(run.N*l.step*q.hashLen, len(keys)):]
		l.at += run.N
	}
}

// apply turns a run at the scan's position into bits.
func (q *Query) apply(l *groupScan, run index.Run, keys []byte) {
	var complete uint64
	if run.Coverage != nil {
		complete = run.Coverage.Complete
	}
	missing := false
	q.growBits(l, l.at+run.N)
	for _, g := range l.groups {
		if q.explain && run.Coverage != nil && run.Coverage.Counts[g] > 0 {
			setBits(q.partly.Bits[g], l.at, run.N)
		}
		switch {
		case complete>>g&1 == 1:
			setBits(q.presence.Bits[g], l.at, run.N)
		case run.Coverage != nil && run.Coverage.Counts[g] > 0 && q.service.sumsRanks():
			l.partial = true
			q.rankSums.add(q, l, g, run, keys)
		case l.full>>g&1 == 1:
			missing = true
		}
	}
	if missing && !q.explain {
		q.lowerLimit(l, run.N)
	}
}

// lowerLimit lowers the limit to what the rules may still look at when a
// full-attention group lacks the n positions from the scan's on.
func (q *Query) lowerLimit(l *groupScan, n int) {
	chunk := l.at / l.chunkPositions
	if l.chunkPositions > 1 { // the chunk is missing if its last hash is
		if last := chunk*l.chunkPositions + l.chunkPositions - 1; last >= l.at+n {
			return
		}
		chunk++ // hits may end inside it
	}
	q.limit = min(q.limit, q.lookEnd(chunk*l.chunkPositions*l.step))
}

// clearBits clears the bits collected so far: the index was reset.
func (q *Query) clearBits() {
	for g := range q.presence.Bits {
		clear(q.presence.Bits[g])
		clear(q.partly.Bits[g])
	}
	q.rankSums.reset()
}

// Finish returns the hit, at most 2^32-1 tokens, and counts it. It fails where the rules do.
func (q *Query) Finish() (api.Hit, error) {
	hit, err := q.answer()
	if err != nil {
		return api.Hit{}, err
	}
	covered := int64(q.numHashes) * int64(q.service.pool.HashBlockSize)
	if q.active {
		q.service.count(min(q.tokenLen, covered), hit)
	} else {
		q.service.count(0, 0)
	}
	return newHit(hit, q.service.coord.Alignment()), nil
}

// answer applies the rules to the bits.
func (q *Query) answer() (int64, error) {
	if !q.active {
		return 0, nil
	}
	stable := true
	for i := range q.scans {
		clean, unchanged := q.service.index.End(&q.scans[i].cursor)
		if !clean {
			q.clearBits()
		}
		stable = stable && unchanged
	}
	if stable {
		q.rankSums.resolve(q)
	}
	q.presence.NumHashes = q.numHashes
	return q.service.coord.Answer(&q.presence, q.numTokens, &q.scratch)
}

// newHit cuts a hit to the wire's 32 bits and keeps it aligned.
func newHit(tokens, alignment int64) api.Hit {
	if tokens > math.MaxUint32 {
		tokens = math.MaxUint32 - math.MaxUint32%alignment
	}
	return api.Hit{Tokens: tokens}
}

// Release gives back what Begin took and returns the query to its pool. It is
// right at any time after NewQuery, also when a lookup is abandoned half-way.
func (q *Query) Release() {
	for g, w := range q.words {
		if w != nil {
			w.Release()
			q.words[g], q.presence.Bits[g] = nil, nil
		}
	}
	for i := range q.scans {
		q.scans[i].cursor.Drop()
	}
	clear(q.runs[:]) // they point to coverage that a reset may have dropped
	q.rankSums.reset()
	q.active, q.explain = false, false
	if q.unit = 1; q.anchored != nil {
		q.anchored.drop()
	}
	clear(q.partly.Bits)
	q.service.queries.Put(q)
}

// setBits sets n bits from position at on.
func setBits(words []uint64, at, n int) {
	if n <= 0 {
		return
	}
	first, last := at/64, (at+n-1)/64
	head := ^uint64(0) << (at % 64)
	tail := ^uint64(0) >> (63 - (at+n-1)%64)
	if first == last {
		words[first] |= head & tail
		return
	}
	words[first] |= head
	words[last] |= tail
	for i := range words[first+1 : last] {
		words[first+1+i] = ^uint64(0)
	}
}
