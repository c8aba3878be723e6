package lookup

import (
	"fmt"
	"math"
	"unsafe"

	"golang.org/x/sys/cpu"

	"github.com/hitline/hitline/bufpool"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/lookup/api"
)

// runsPerProbe is how many runs one call of the index returns at most. A chain is one or
// two, so this rarely fills up, and its 1 KiB stays in the query.
const runsPerProbe = 64

// Query is one lookup in flight over the memory index: hashes go in as they arrive and
// become presence bits at once. Queries are pooled; one belongs to one goroutine from
// NewQuery to Release.
type Query struct {
	_         cpu.CacheLinePad // what lookups on other cores write to is on other cache lines
	service   *Service
	stripe    *counterStripe // of service.counters
	numTokens int64
	tokenLen  int64 // TokenLen of numTokens
	hashLen   int
	numHashes int  // those before the start included
	active    bool // Begin found something to look up
	explain   bool // for an explanation: nothing is counted, and no block becomes more recent

	received int // hashes received so far, or skipped, or before the start
	limit    int // hashes from here on cannot change the answer
	scans    []groupScan
	words    []*bufpool.Words // bitset of each group, nil outside a lookup

	presence      coordinator.Presence
	presentOnSome [][]uint64 // Bits of the blocks that some ranks hold; for explain
	scratch       coordinator.Scratch
	endScratch    coordinator.Scratch // of Ending, which keeps what Finish has returned
	runs          [runsPerProbe]index.Run
	_             cpu.CacheLinePad
}

// groupScan is how far a query has looked up one group set.
type groupScan struct {
	*groupSet
	cursor    index.Cursor
	first     int       // position of the first bit: that at which the lookup begins
	position  int       // next one to look up
	positions int       // that the lookup covers, those before the first included
	numRuns   int       // that the index has returned
	rankRuns  []rankRun // for explain
	_         cpu.CacheLinePad
}

// NewQuery returns a query that the caller must release. It must not be called over a
// backend.
func (s *Service) NewQuery() *Query { return s.queries.Get().(*Query) }

func newQuery(s *Service) *Query {
	q := &Query{
		service: s, stripe: s.counters.choose(), scans: make([]groupScan, len(s.groupSets)),
		words: padded[*bufpool.Words](s.coord.NumGroups()),
	}
	for i := range s.groupSets {
		q.scans[i].groupSet = &s.groupSets[i]
	}
	q.presence.Bits = padded[[]uint64](s.coord.NumGroups())
	q.presentOnSome = padded[[]uint64](s.coord.NumGroups())
	return q
}

// padded returns a slice of n elements whose last cache line has nothing of another slice.
func padded[T any](n int) []T {
	const line = unsafe.Sizeof(cpu.CacheLinePad{})
	pad := int((line + unsafe.Sizeof(*new(T)) - 1) / unsafe.Sizeof(*new(T)))
	return make([]T, n, n+pad)
}

// Begin starts a lookup from token start on, of numHashes hashes of hashLen bytes that begin there.
// CheckStart must have accepted the start. unaligned says that the number of tokens, which may have
// been too large for 64 bits, is not a multiple of the alignment. wanted is false if no hash can
// change the answer.
func (q *Query) Begin(numTokens uint64, unaligned bool, start int64, hashLen, numHashes int) (wanted bool, err error) {
	s := q.service
	q.numTokens, q.presence.Start = s.clampTokens(numTokens, unaligned), start
	q.received, q.limit = 0, 0
	if start > 0 {
		q.received = int(start / int64(s.pool.HashBlockSize))
	}
	q.hashLen, q.numHashes = hashLen, q.received+numHashes
	q.active = false
	if q.numHashes == 0 || q.numTokens == 0 {
		return false, nil // answered 0 before anything is checked
	}
	if q.tokenLen, err = s.coord.TokenLen(q.numTokens); err != nil {
		return false, err
	}
	q.active = true
	for i := range q.scans {
		scan := &q.scans[i]
		scan.first = s.coord.FirstPosition(scan.groups[0], start)
		scan.position, scan.numRuns = scan.first, 0
		scan.positions = s.coord.Positions(scan.groups[0], q.tokenLen, q.numHashes)
		q.limit = max(q.limit, scan.positions*scan.stride)
		scan.cursor.Quiet = q.explain
		s.index.Begin(&scan.cursor, hashLen)
		q.growBits(scan, min(scan.positions, scan.first+initialPositions))
	}
	return q.limit > q.received, nil
}

// initialPositions is how many positions the bitsets of a group set hold from the start
// on. A peer announces many hashes in a few bytes, so beyond this they grow as hashes come.
const initialPositions = 1 << 14

// growBits grows the bitsets of a group set's groups to at least the positions up to end. Bits that
// are not there count as absent blocks.
func (q *Query) growBits(scan *groupScan, end int) {
	n := end - scan.first // bits
	for _, g := range scan.groups {
		have := q.words[g]
		if have != nil && n <= 64*len(have.W) {
			return // as in the other groups
		}
		if have != nil {
			n = min(max(n, 128*len(have.W)), scan.positions-scan.first)
		}
		q.words[g] = bufpool.GetWords((n + 63) / 64)
		if have != nil {
			copy(q.words[g].W, have.W)
			have.Release()
		}
		q.presence.Bits[g] = q.words[g].W
		if q.explain {
			q.presentOnSome[g] = append(make([]uint64, 0, len(q.words[g].W)), q.presentOnSome[g]...)[:len(q.words[g].W)]
		}
	}
}

// Add looks up the next whole hashes, borrowed until it returns. It returns false when no
// further hash can change the answer.
func (q *Query) Add(hashes []byte) bool {
	if !q.active {
		return false
	}
	n := len(hashes) / q.hashLen
	more := false
	for i := range q.scans {
		scan := &q.scans[i]
		q.scan(scan, hashes, n)
		more = more || scan.position < q.scanEnd(scan)
	}
	q.received += n
	return more
}

// scanEnd returns the position at which the scan of a group set ends.
func (q *Query) scanEnd(scan *groupScan) int {
	return min(scan.positions, q.limit/scan.stride)
}

// scan looks up the positions of a group set whose hashes are among the n received ones.
func (q *Query) scan(scan *groupScan, hashes []byte, n int) {
	for {
		start, end, ok := scan.mask.Next(int64(scan.position))
		bound := int64(q.scanEnd(scan))
		if !ok || start >= bound {
			scan.position = int(bound)
			return
		}
		end = min(end, bound)
		scan.position = int(start)
		first := scan.position*scan.stride + scan.stride - 1 - q.received // in hashes
		if first >= n {
			return
		}
		count := min(int(end-start), (n-1-first)/scan.stride+1)
		from := first * q.hashLen
		to := (first + (count-1)*scan.stride + 1) * q.hashLen
		q.probe(scan, hashes[from:to])
	}
}

// probe looks up the keys of consecutive positions of a group set, and applies the runs
// that the index returns.
func (q *Query) probe(scan *groupScan, keys []byte) {
	stop := scan.full != 0 && scan.chunkPositions == 1 && !q.explain // which reads on after a miss
	filled, _, clean := q.service.index.Probe(&scan.cursor, keys, scan.stride, q.runs[:], stop)
	scan.numRuns += filled
	if !clean {
		q.clearBits()
	}
	for _, run := range q.runs[:filled] {
		if scan.position >= q.scanEnd(scan) {
			return
		}
		q.apply(scan, run)
		scan.position += run.N
	}
}

// apply sets the bits of a run that begins at the scan's position.
func (q *Query) apply(scan *groupScan, run index.Run) {
	var complete uint64
	if run.Coverage != nil {
		complete = run.Coverage.Complete
	}
	missing, partly, at := false, false, scan.position-scan.first
	q.growBits(scan, scan.position+run.N)
	for _, g := range scan.groups {
		if q.explain && run.Coverage != nil && run.Coverage.Counts[g] > 0 {
			setBits(q.presentOnSome[g], at, run.N)
			partly = partly || complete>>g&1 == 0
		}
		switch {
		case complete>>g&1 == 1:
			setBits(q.presence.Bits[g], at, run.N)
		case scan.full>>g&1 == 1:
			missing = true
		}
	}
	if partly {
		q.addRankRun(scan, run.N, run.Coverage)
	}
	if missing && !q.explain {
		q.lowerLimit(scan, run.N)
	}
}

// lowerLimit lowers the limit to what the rules can still read if a full-attention group
// lacks the n positions from the scan's on.
func (q *Query) lowerLimit(scan *groupScan, n int) {
	chunk := scan.position / scan.chunkPositions
	if scan.chunkPositions > 1 { // the chunk is missing if its last hash is
		if last := chunk*scan.chunkPositions + scan.chunkPositions - 1; last >= scan.position+n {
			return
		}
		chunk++ // hits may end inside it
	}
	q.limit = min(q.limit, q.lookEnd(chunk*scan.chunkPositions*scan.stride))
}

// lookEnd is coordinator.LookEnd in hashes.
func (q *Query) lookEnd(hash int) int {
	tokens := int64(q.service.pool.HashBlockSize) // of a hash
	return int(min(q.service.coord.LookEnd(int64(hash)*tokens)/tokens, math.MaxInt))
}

const (
	// largeWork is how many positions of one run the rules go through in about 100 microseconds.
	largeWork = 1 << 21
	// workPerRun is the cost of a run in positions: a window that no run fills takes 6 nanoseconds
	// for each.
	workPerRun = 128
)

// IsLarge reports, after the last Add, whether Finish may take longer than about 100 microseconds:
// it should then not run on an event loop.
func (q *Query) IsLarge() bool {
	work := 0
	for i := range q.scans {
		scan := &q.scans[i]
		work += (scan.position - scan.first + workPerRun*scan.numRuns) * len(scan.groups)
	}
	return q.active && work > largeWork
}

// clearBits clears all bits, after a reset of the index.
func (q *Query) clearBits() {
	for g := range q.presence.Bits {
		clear(q.presence.Bits[g])
		clear(q.presentOnSome[g])
	}
	for i := range q.scans {
		q.scans[i].rankRuns = nil
	}
}

// Finish returns the hit, at most 2^32-1 tokens, and counts the lookup. It may be called on another
// goroutine than Add was. Its tail boundaries are valid until Release. It fails if the rules do.
func (q *Query) Finish() (api.Hit, error) {
	hit, err := q.finish()
	if err == nil {
		q.count()
	}
	return hit, err
}

// Ending returns where the blocks end that the lookup has found, and which block has ended its hit, which is that of
// Finish.
func (q *Query) Ending(hit api.Hit) coordinator.Ending {
	if !q.active {
		return coordinator.Ending{Found: q.received, Group: -1}
	}
	return q.service.coord.Ending(&q.presence, hit, q.numTokens, &q.endScratch)
}

// finish is Finish for a lookup that is not counted yet.
func (q *Query) finish() (api.Hit, error) {
	answer, err := q.answer()
	if err != nil {
		return api.Hit{}, err
	}
	return q.service.newHit(answer)
}

// count counts a lookup that was answered.
func (q *Query) count() { q.stripe = q.service.counters.count(q.stripe) }

// answer ends the scans, and applies the rules to the bits.
func (q *Query) answer() (coordinator.Hit, error) {
	if !q.active {
		return coordinator.Hit{}, nil
	}
	q.endScans()
	return q.service.coord.Answer(&q.presence, q.numTokens, &q.scratch)
}

// endScans ends the scans after the last hash. The presence is complete then.
func (q *Query) endScans() {
	for i := range q.scans {
		if !q.service.index.End(&q.scans[i].cursor) {
			q.clearBits()
		}
	}
	q.presence.NumHashes = q.numHashes
}

// newHit returns the hit of an answer. The wire has 32 bits for a number of tokens. A hit with
// tail boundaries that does not fit is ErrHitRange, as in the reference; any other is rounded
// down to the largest aligned hit that fits.
func (s *Service) newHit(hit coordinator.Hit) (api.Hit, error) {
	if s.coord.HasTailBoundaries() {
		if err := checkRange(hit); err != nil {
			return api.Hit{}, err
		}
		return hit, nil
	}
	if hit.Tokens > math.MaxUint32 {
		hit.Tokens = math.MaxUint32 - math.MaxUint32%s.coord.Alignment()
	}
	return hit, nil
}

// checkRange fails with ErrHitRange if a number of the hit has more than 32 bits.
func checkRange(hit coordinator.Hit) error {
	fits := func(n int64) bool { return n >= 0 && n <= math.MaxUint32 }
	for _, b := range hit.TailBoundaries {
		if !fits(int64(b.Group)) || !fits(b.Tokens) {
			return fmt.Errorf("%w: %d tokens of group %d", ErrHitRange, b.Tokens, b.Group)
		}
	}
	if !fits(hit.Tokens) {
		return fmt.Errorf("%w: %d tokens", ErrHitRange, hit.Tokens)
	}
	return nil
}

// Release returns the query and its bitsets to their pools. It may be called at any time
// after NewQuery, also in the middle of a lookup.
func (q *Query) Release() {
	for g, w := range q.words {
		if w != nil {
			w.Release()
			q.words[g], q.presence.Bits[g] = nil, nil
		}
	}
	for i := range q.scans {
		q.scans[i].cursor.Drop()
		q.scans[i].rankRuns = nil
	}
	clear(q.runs[:]) // they keep coverage in memory that a reset may have dropped
	q.active, q.explain = false, false
	clear(q.presentOnSome)
	q.service.queries.Put(q)
}

// Held returns the bytes of memory that an unfinished lookup holds.
func (q *Query) Held() int {
	n := 0
	for _, w := range q.words {
		if w != nil {
			n += 8 * cap(w.W)
		}
	}
	for i := range q.scans {
		n += q.scans[i].cursor.Held()
	}
	return n
}

// setBits sets n bits, the first at index at.
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
