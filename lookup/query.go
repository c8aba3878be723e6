package lookup

import (
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
	memory    *Memory
	stripe    *counterStripe // of memory.counters
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

// NewQuery returns a query that the caller must release.
func (m *Memory) NewQuery() *Query {
	if q, ok := m.queries.Get().(*Query); ok {
		return q
	}
	return newQuery(m)
}

func newQuery(m *Memory) *Query {
	q := &Query{
		memory: m, stripe: m.counters.choose(), scans: make([]groupScan, len(m.groupSets)),
		words: padded[*bufpool.Words](m.coord.NumGroups()),
	}
	for i := range m.groupSets {
		q.scans[i].groupSet = &m.groupSets[i]
	}
	q.presence.Bits = padded[[]uint64](m.coord.NumGroups())
	q.presentOnSome = padded[[]uint64](m.coord.NumGroups())
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
	m := q.memory
	q.numTokens, q.presence.Start = m.clampTokens(numTokens, unaligned), start
	q.received, q.limit = 0, 0
	if start > 0 {
		q.received = int(start / int64(m.pool.HashBlockSize))
	}
	q.hashLen, q.numHashes = hashLen, q.received+numHashes
	q.active = false
	if q.numHashes == 0 || q.numTokens == 0 {
		return false, nil // answered 0 before anything is checked
	}
	if q.tokenLen, err = m.coord.TokenLen(q.numTokens); err != nil {
		return false, err
	}
	q.active = true
	for i := range q.scans {
		scan := &q.scans[i]
		scan.first = m.coord.FirstPosition(scan.groups[0], start)
		scan.position, scan.numRuns = scan.first, 0
		scan.positions = m.coord.Positions(scan.groups[0], q.tokenLen, q.numHashes)
		q.limit = max(q.limit, scan.positions*scan.stride)
		scan.cursor.Quiet = q.explain
		m.index.Begin(&scan.cursor, hashLen)
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

// addAll begins the query and adds all hashes at once.
func (q *Query) addAll(numTokens int64, hashes coordinator.Hashes) error {
	n := uint64(numTokens)
	wanted, err := q.Begin(n, q.memory.unaligned(n), hashes.Start(), hashes.HashLen(), hashes.Len())
	if wanted {
		q.Add(hashes.Bytes())
	}
	return err
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
	filled, _, clean := q.memory.index.Probe(&scan.cursor, keys, scan.stride, q.runs[:], stop)
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
			coordinator.SetBits(q.presentOnSome[g], at, at+run.N)
			partly = partly || complete>>g&1 == 0
		}
		switch {
		case complete>>g&1 == 1:
			coordinator.SetBits(q.presence.Bits[g], at, at+run.N)
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
	tokens := int64(q.memory.pool.HashBlockSize) // of a hash
	return int(min(q.memory.coord.LookEnd(int64(hash)*tokens)/tokens, math.MaxInt))
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
	answer, err := q.answer()
	if err != nil {
		return api.Hit{}, err
	}
	hit, err := q.memory.newHit(answer)
	if err == nil {
		q.stripe = q.memory.counters.count(q.stripe)
	}
	return hit, err
}

// Ending returns where the blocks end that the lookup has found, and which block has ended its hit, which is that of
// Finish.
func (q *Query) Ending(hit api.Hit) coordinator.Ending {
	if !q.active {
		return coordinator.Ending{Found: q.received, Group: -1}
	}
	return q.memory.coord.Ending(&q.presence, hit, q.numTokens, &q.endScratch)
}

// answer ends the scans, and applies the rules to the bits.
func (q *Query) answer() (coordinator.Hit, error) {
	if !q.active {
		return coordinator.Hit{}, nil
	}
	q.endScans()
	return q.memory.coord.Answer(&q.presence, q.numTokens, &q.scratch)
}

// endScans ends the scans after the last hash. The presence is complete then.
func (q *Query) endScans() {
	for i := range q.scans {
		if !q.memory.index.End(&q.scans[i].cursor) {
			q.clearBits()
		}
	}
	q.presence.NumHashes = q.numHashes
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
	q.memory.queries.Put(q)
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
