package fleet

import (
	"math"
	"slices"
)

// Query is one lookup whose hashes arrive in pieces. The zero value is ready, and a Query is reused: nothing
// is allocated in the steady state. It belongs to one goroutine at a time.
//
// A block counts if it was held at some moment between Begin and End. A holder that was cleared, closed or stale
// meanwhile counts for nothing but what is predicted.
type Query struct {
	fleet      *Fleet
	core       *core
	rules      *rules
	version    uint64 // holders that were retired, or became fresh, later do not count
	groupTiers uint32 // those from this number on are of groups that rules may not know
	oldest     uint32 // first epoch that counts
	hashLen    int
	at         int    // byte of a hash where its short form begins
	n          uint32 // hashes so far
	finished   bool   // no further hash can change the answer
	work       int    // see Work
	ending     bool   // by the rules of groups: order has the holders whose hits are found
	found      int    // how many of them have their hit

	scan   scan
	ends   []uint64 // where prefixes end; see packEnd
	order  []uint64 // reused by End
	runs   []run    // with a coordinator
	hybrid hybridScan
}

// maxPiece is how many hashes are looked up in one hold of the lock: at 2 to 20 ns each it is short for a writer that
// waits.
const maxPiece = 4096

// Held returns the bytes of memory that the query holds, for servers that bound what their clients hold. With one group
// of full attention it does not grow with the hashes.
func (q *Query) Held() int {
	n := cap(q.runs)*16 + (cap(q.ends)+cap(q.order)+cap(q.scan.seen)+cap(q.hybrid.first))*8 + cap(q.scan.alive)*16
	for _, words := range q.hybrid.presence.Bits {
		n += cap(words) * 8
	}
	return n
}

// Work is what a query counts for servers that bound how long a client is served at once. A unit is about the cost of
// comparing one hash, 2 to 3 ns.
const (
	hashWork = 8  // of a hash: from 2 in the order of the log to some 20 by the table
	setWork  = 8  // of another set of holders, beside its pairs
	endWork  = 16 // of where a prefix ends: it is sorted
)

// Work returns the work of the query since Begin.
func (q *Query) Work() int { return q.work }

// Begin starts a query about hashes of hashLen bytes. It fails with ErrHashLen.
func (q *Query) Begin(f *Fleet, hashLen int) error {
	if err := checkHashLen(hashLen); err != nil {
		return err
	}
	now := f.epoch(f.cfg.now())
	f.mu.RLock()
	defer f.mu.RUnlock()
	c := f.core
	q.fleet, q.core, q.rules, q.version, q.oldest = f, c, c.groups.rules, c.numbers.version, c.oldestAt(now)
	q.groupTiers = uint32(c.tiers.Len())
	q.hashLen, q.at, q.n = hashLen, f.cfg.shortAt(hashLen), 0
	q.ends, q.runs = q.ends[:0], q.runs[:0]
	q.work, q.ending = 0, false
	q.finished = len(f.holders) == 0
	q.scan.begin(c)
	return nil
}

// Add adds the next hashes, whole ones, which are only borrowed. wanted is false if no further hash can
// change the answer.
func (q *Query) Add(hashes []byte) (wanted bool) {
	for !q.finished && len(hashes) >= q.hashLen {
		piece := hashes[:min(len(hashes)/q.hashLen, maxPiece)*q.hashLen]
		hashes = hashes[len(piece):]
		q.addPiece(piece)
	}
	return !q.finished
}

// addPiece looks up some hashes with the lock.
func (q *Query) addPiece(blob []byte) {
	q.fleet.mu.RLock()
	defer q.fleet.mu.RUnlock()
	if uint64(q.n)+maxPiece > math.MaxUint32 || q.fleet.core != q.core {
		q.finished = true
		return
	}
	q.oldest = max(q.oldest, q.core.oldest)
	q.work += len(blob) / q.hashLen * hashWork
	if q.rules.coordinator == nil {
		q.scanLeading(blob)
	} else {
		q.recordRuns(blob)
	}
}

// cursor is where a query is in the log. A cursor is valid while the lock is held.
type cursor struct {
	seg *segment
	i   uint32
}

// next moves to the record of a key, by the table unless it is the next in the log. It returns its set number,
// deadRecord if there is none.
func (cur *cursor) next(c *core, key uint64) uint32 {
	if cur.i < segmentLen && cur.seg != nil && cur.seg.keys[cur.i] == key {
		if num := cur.seg.sets[cur.i]; num != deadRecord {
			cur.i++
			return num
		}
	}
	pos, ok := c.table.find(&c.log, key)
	if !ok {
		return deadRecord
	}
	cur.seg, cur.i = c.log.at(pos)
	cur.i++
	return cur.seg.sets[cur.i-1]
}

// packEnd packs where the prefix of a holder in a medium ends. media are numbered by the order of their names, from 1
// on; 0 is all media together.
func packEnd(holder uint32, medium uint8, n uint32) uint64 {
	return uint64(holder)<<40 | uint64(medium)<<32 | uint64(n)
}

// scanLeading goes on with the leading blocks of one group of full attention.
func (q *Query) scanLeading(blob []byte) {
	c, s := q.core, &q.scan
	var cur cursor
	last := uint32(deadRecord)
	for len(blob) >= q.hashLen {
		num := cur.next(c, key(blob, q.at))
		if num != last || num == deadRecord {
			q.intersect(c.sets.at(num))
			if len(s.alive) == 0 {
				q.finished = true
				return
			}
			last = num
		}
		q.n++
		blob = blob[q.hashLen:]
	}
}

// aliveWord are holders whose blocks are held so far in one medium, or in all together.
type aliveWord struct {
	word   uint32
	medium uint16
	bits   uint64
}

// scan is the working memory of a query about leading blocks.
type scan struct {
	alive []aliveWord
	begun bool
	words uint32   // of the holders that there were when the query began
	media uint16   // numbers of media, and allMedia
	seen  []uint64 // by medium and word: what a set has; zeros between two uses
}

// allMedia is the number of all media together in a scan. The media follow.
const allMedia = 0

func (s *scan) begin(c *core) {
	s.alive, s.begun = s.alive[:0], false
	s.words, s.media = uint32(len(c.numbers.live)), uint16(len(c.tiers.media)+1)
	n := int(s.words) * int(s.media)
	s.seen = slices.Grow(s.seen[:0], n)[:n]
}

// intersect removes the holders that a set lacks from those that are alive. Their prefixes end before hash number n.
func (q *Query) intersect(set *holderSet) {
	c, s := q.core, &q.scan
	q.work += setWork + 2*len(set.pairs) + len(s.alive)
	for i := range set.pairs {
		p := &set.pairs[i]
		medium := uint16(c.tiers.mediumOf(p)) + 1
		if p.word >= s.words || !q.knows(p) {
			continue
		}
		bits := q.counting(p)
		s.seen[p.word] |= bits
		s.seen[uint32(medium)*s.words+p.word] |= bits
	}
	if s.begun {
		q.endMissing()
	} else {
		s.begun = true
		q.beginAlive(set)
	}
	for i := range set.pairs {
		p := &set.pairs[i]
		medium := uint16(c.tiers.mediumOf(p)) + 1
		if p.word < s.words && q.knows(p) {
			s.seen[p.word], s.seen[uint32(medium)*s.words+p.word] = 0, 0
		}
	}
}

// knows reports whether a group and tier were known when the query began, or is predicted. A group that was learned later is not
// what rules are about, and its medium may be new, too.
func (q *Query) knows(p *pair) bool {
	return p.groupTier < q.groupTiers || p.groupTier&predictedIn != 0
}

// counting returns the holders of a pair that count.
func (q *Query) counting(p *pair) uint64 {
	if p.groupTier&predictedIn != 0 {
		return q.core.numbers.predicted(p, q.oldest)
	}
	return p.bits & q.core.numbers.fresh[p.word]
}

// beginAlive makes all holders of the first set alive.
func (q *Query) beginAlive(set *holderSet) {
	s := &q.scan
	for i := range set.pairs {
		p := &set.pairs[i]
		medium := uint16(q.core.tiers.mediumOf(p)) + 1
		if p.word >= s.words || !q.knows(p) {
			continue
		}
		for _, m := range [2]uint16{allMedia, medium} {
			seen := &s.seen[uint32(m)*s.words+p.word]
			if *seen != 0 {
				s.alive = append(s.alive, aliveWord{p.word, m, *seen})
				*seen = 0 // another pair may have the same word
			}
		}
	}
}

// endMissing ends the prefixes of holders that are alive and not seen.
func (q *Query) endMissing() {
	s := &q.scan
	left := s.alive[:0]
	for _, a := range s.alive {
		seen := s.seen[uint32(a.medium)*s.words+a.word]
		if missing := a.bits &^ seen; missing != 0 {
			q.end(a.word, a.medium, missing)
		}
		if a.bits &= seen; a.bits != 0 {
			left = append(left, a)
		}
	}
	s.alive = left
}
