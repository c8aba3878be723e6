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
	LastKnown bool    // what stale holders had last counts, too; set before Begin
	pass              // by the first rules
	others    []*pass // by further ones
	another   int     // how many of others are in use: the rest is reused
	answer    answer
}

// pass is a query about the holders of some rules.
type pass struct {
	fleet    *Fleet
	core     *core
	rules    *rules
	version  uint64 // holder numbers that were retired, or became fresh, later do not count
	tiers    uint64 // version of tierTable: groups and tiers that got a number later do not count
	oldest   uint32 // first epoch that counts
	hashLen  int
	at       int    // byte of a hash where its short form begins
	n        uint32 // hashes so far
	finished bool   // no further hash can change the answer

	lastKnown bool // of Query

	scan   scan
	ends   []prefixEnd
	runs   []run // with a coordinator
	hybrid hybridScan
}

// maxPiece is how many hashes are looked up in one hold of the lock: at up to 20 ns each it is short for a writer that
// waits.
const maxPiece = 4096

// Begin starts a query about hashes of hashLen bytes. It fails with ErrHashLen.
func (q *Query) Begin(f *Fleet, hashLen int) error {
	if err := checkHashLen(hashLen); err != nil {
		return err
	}
	f.mu.RLock()
	defer f.mu.RUnlock()
	oldest := f.oldest()
	q.another = 0
	p := &q.pass
	p.lastKnown = q.LastKnown
	p.begin(f, hashLen, oldest, f.core.groups.none().rules)
	for _, r := range f.core.groups.rules {
		if r.used == 0 || r == p.rules {
			continue
		}
		if p.rules.used > 0 {
			if q.another++; q.another > len(q.others) {
				q.others = append(q.others, new(pass))
			}
			p = q.others[q.another-1]
		}
		p.begin(f, hashLen, oldest, r)
		p.lastKnown = q.LastKnown
	}
	return nil
}

func (q *pass) begin(f *Fleet, hashLen int, oldest uint32, r *rules) {
	c := f.core
	q.fleet, q.core, q.rules, q.version, q.oldest = f, c, r, c.numbers.version, oldest
	q.tiers = c.tiers.version
	q.hashLen, q.at, q.n = hashLen, f.cfg.shortAt(hashLen), 0
	q.ends, q.runs = q.ends[:0], q.runs[:0]
	q.finished = len(f.holders) == 0
	q.scan.begin(c)
}

// Add adds the next hashes, whole ones, which are only borrowed. wanted is false if no further hash can
// change the answer.
func (q *Query) Add(hashes []byte) (wanted bool) {
	wanted = q.pass.add(hashes)
	for _, p := range q.others[:q.another] {
		wanted = p.add(hashes) || wanted
	}
	return wanted
}

func (q *pass) add(hashes []byte) (wanted bool) {
	for !q.finished && len(hashes) >= q.hashLen {
		piece := hashes[:min(len(hashes)/q.hashLen, maxPiece)*q.hashLen]
		hashes = hashes[len(piece):]
		q.addPiece(piece)
	}
	return !q.finished
}

// addPiece looks up some hashes with the lock.
func (q *pass) addPiece(blob []byte) {
	q.fleet.mu.RLock()
	defer q.fleet.mu.RUnlock()
	if uint64(q.n)+maxPiece > math.MaxUint32 {
		q.finished = true
		return
	}
	q.oldest = max(q.oldest, q.core.oldest)
	q.scan.beginPiece(q.core.numbers.live, q.freshHolders(), q.rules)
	if q.rules.coordinator == nil {
		q.scanLeading(blob)
	} else {
		q.recordRuns(blob)
	}
}

// scanLeading goes on with the leading blocks of one group of full attention.
func (q *pass) scanLeading(blob []byte) {
	c := q.core
	var cur cursor
	last := uint32(deadRecord)
	for len(blob) >= q.hashLen {
		num, n := cur.next(c, blob, q.hashLen, q.at)
		if num != last || num == deadRecord {
			q.intersect(c.sets.at(num))
			if len(q.scan.alive) == 0 {
				q.finished = true
				return
			}
			last = num
		}
		q.n += uint32(n)
		blob = blob[n*q.hashLen:]
	}
}

// candidates are the holders of one word whose blocks are held so far in one medium, or in all together.
type candidates struct {
	word   uint32
	medium uint8
	bits   uint64
}

// scan is the working memory of a query about leading blocks.
type scan struct {
	alive []candidates
	begun bool
	words uint32   // of the holders that there were when the query began
	seen  []uint64 // by medium and word: what a set has; zeros between two uses
	live  bitmap   // of numberTable, but only of holders with the rules
	fresh bitmap
}

// allMedia is the number of all media together in a scan. The media follow.
const allMedia = 0

func (s *scan) begin(c *core) {
	s.alive, s.begun = s.alive[:0], false
	s.words = uint32(len(c.numbers.live))
	n := int(s.words) * (1 + len(c.tiers.media))
	s.seen = slices.Grow(s.seen[:0], n)[:n]
}

// index returns where seen has a word in a medium.
func (s *scan) index(word uint32, medium uint8) uint32 { return uint32(medium)*s.words + word }

// intersect removes the holders that a set lacks from those that are alive. Their prefixes end before hash number n.
func (q *pass) intersect(set *holderSet) {
	c, s := q.core, &q.scan
	for i := range set.pairs {
		p := &set.pairs[i]
		if holders := q.among(p); holders != 0 {
			s.seen[p.word] |= holders
			s.seen[s.index(p.word, c.tiers.mediumOf(p)+1)] |= holders
		}
	}
	if s.begun {
		q.endMissing(q.n)
	} else {
		s.begun = true
		q.beginAlive(set)
	}
	for i := range set.pairs {
		if p := &set.pairs[i]; q.among(p) != 0 {
			s.seen[p.word], s.seen[s.index(p.word, c.tiers.mediumOf(p)+1)] = 0, 0
		}
	}
}

// counting returns the holders of a pair that count, of those that are live or fresh. Those of pairs that the query
// cannot know do not: a group that was learned after it began is not what its rules are about, and its medium may be new,
// too.
func (q *pass) counting(p *pair, live, fresh bitmap) uint64 {
	switch isPredicted := p.groupTier&predictedIn != 0; {
	case p.word >= q.scan.words:
		return 0
	case isPredicted && p.groupTier&^predictedIn >= q.oldest:
		return p.bits & live[p.word]
	case !isPredicted && q.core.tiers.uses[p.groupTier].since <= q.tiers:
		return p.bits & fresh[p.word]
	}
	return 0
}

// freshHolders returns the holders for which events count.
func (q *pass) freshHolders() bitmap {
	if q.lastKnown {
		return q.core.numbers.live
	}
	return q.core.numbers.fresh
}

// isFresh reports whether events have counted for a holder since the query began.
func (q *pass) isFresh(number uint32) bool {
	return q.lastKnown || q.core.numbers.isFresh(number, q.version)
}

// among returns those that count and have the rules, in this hold of the lock.
func (q *pass) among(p *pair) uint64 { return q.counting(p, q.scan.live, q.scan.fresh) }

// beginPiece finds the holders that have the rules: those that got others since the query began do not any more.
func (s *scan) beginPiece(live, fresh bitmap, r *rules) {
	n := int(s.words)
	s.live, s.fresh = append(s.live[:0], live[:n]...), append(s.fresh[:0], fresh[:n]...)
	for w := range n {
		holders := uint64(0)
		if w < len(r.holders) {
			holders = r.holders[w]
		}
		s.live[w] &= holders
		s.fresh[w] &= holders
	}
}

// beginAlive makes all holders of the first set alive.
func (q *pass) beginAlive(set *holderSet) {
	s := &q.scan
	for i := range set.pairs {
		p := &set.pairs[i]
		if q.among(p) == 0 {
			continue
		}
		for _, medium := range [2]uint8{allMedia, q.core.tiers.mediumOf(p) + 1} {
			seen := &s.seen[s.index(p.word, medium)]
			if *seen != 0 {
				s.alive = append(s.alive, candidates{p.word, medium, *seen})
				*seen = 0 // another pair may have the same word
			}
		}
	}
}

// endMissing ends the prefixes of holders that are alive and not seen, after n hashes.
func (q *pass) endMissing(n uint32) {
	s := &q.scan
	left := s.alive[:0]
	for _, a := range s.alive {
		seen := s.seen[s.index(a.word, a.medium)]
		if missing := a.bits &^ seen; missing != 0 {
			q.end(a.word, a.medium, missing, n)
		}
		if a.bits &= seen; a.bits != 0 {
			left = append(left, a)
		}
	}
	s.alive = left
}
