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
	passes    []*pass // one for each of the rules in use; reused
	numPasses int     // in use
	answer    answer
}

// pass is a query about the holders of some rules.
type pass struct {
	fleet          *Fleet
	core           *core
	rules          *rules
	numbersVersion uint64 // holder numbers that were retired, or became fresh, later do not count
	tiersVersion   uint64 // version of tierTable: groups and tiers that got a number later do not count
	oldest         uint32 // first epoch that counts
	hashLen        int
	at             int    // byte of a hash where its short form begins
	n              uint32 // hashes so far
	finished       bool   // no further hash can change the answer

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
	q.numPasses = 0
	none := f.core.groups.none().rules
	if none.used > 0 {
		q.addPass().begin(f, hashLen, none)
	}
	for _, r := range f.core.groups.rules {
		if r.used > 0 && r != none {
			q.addPass().begin(f, hashLen, r)
		}
	}
	if q.numPasses == 0 {
		q.addPass().begin(f, hashLen, none)
	}
	return nil
}

// addPass returns one more pass, which is not begun.
func (q *Query) addPass() *pass {
	if q.numPasses++; q.numPasses > len(q.passes) {
		q.passes = append(q.passes, new(pass))
	}
	p := q.passes[q.numPasses-1]
	p.lastKnown = q.LastKnown
	return p
}

func (p *pass) begin(f *Fleet, hashLen int, r *rules) {
	c := f.core
	p.fleet, p.core, p.rules, p.numbersVersion, p.oldest = f, c, r, c.numbers.version, f.oldest()
	p.tiersVersion = c.tiers.version
	p.hashLen, p.at, p.n = hashLen, f.cfg.shortAt(hashLen), 0
	p.ends, p.runs = p.ends[:0], p.runs[:0]
	p.finished = len(f.holders) == 0
	p.scan.begin(c)
}

// Add adds the next hashes, whole ones, which are only borrowed. wanted is false if no further hash can
// change the answer.
func (q *Query) Add(hashes []byte) (wanted bool) {
	for _, p := range q.passes[:q.numPasses] {
		wanted = p.add(hashes) || wanted
	}
	return wanted
}

func (p *pass) add(hashes []byte) (wanted bool) {
	for !p.finished && len(hashes) >= p.hashLen {
		piece := hashes[:min(len(hashes)/p.hashLen, maxPiece)*p.hashLen]
		hashes = hashes[len(piece):]
		p.addPiece(piece)
	}
	return !p.finished
}

// addPiece looks up some hashes with the lock.
func (p *pass) addPiece(blob []byte) {
	p.fleet.mu.RLock()
	defer p.fleet.mu.RUnlock()
	if uint64(p.n)+maxPiece > math.MaxUint32 {
		p.finished = true
		return
	}
	p.oldest = max(p.oldest, p.core.oldest)
	p.scan.beginPiece(p.core.numbers.live, p.freshHolders(), p.rules)
	if p.rules.coordinator == nil {
		p.scanLeading(blob)
	} else {
		p.recordRuns(blob)
	}
}

// scanLeading goes on with the leading blocks of one group of full attention.
func (p *pass) scanLeading(blob []byte) {
	c := p.core
	var cur cursor
	last := uint32(deadRecord)
	for len(blob) >= p.hashLen {
		num, n := cur.next(c, blob, p.hashLen, p.at)
		if num != last || num == deadRecord {
			p.intersect(c.sets.at(num))
			if len(p.scan.open) == 0 {
				p.finished = true
				return
			}
			last = num
		}
		p.n += uint32(n)
		blob = blob[n*p.hashLen:]
	}
}

// openPrefix is the prefixes of some holders, of one word, that have not ended in a medium, or in all together.
type openPrefix struct {
	word   uint32
	medium uint8
	bits   uint64
}

// scan is the working memory of a query about leading blocks.
type scan struct {
	open  []openPrefix
	begun bool
	words uint32   // of the holders that there were when the query began
	seen  []uint64 // by medium and word: what a set has; zeros between two uses
	live  bitmap   // of numberTable, but only of holders with the rules
	fresh bitmap
}

// allMedia is the number of all media together in a scan. The media follow.
const allMedia = 0

func (s *scan) begin(c *core) {
	s.open, s.begun = s.open[:0], false
	s.words = uint32(len(c.numbers.live))
	n := int(s.words) * (1 + len(c.tiers.media))
	s.seen = slices.Grow(s.seen[:0], n)[:n]
}

// index returns where seen has a word in a medium.
func (s *scan) index(word uint32, medium uint8) uint32 { return uint32(medium)*s.words + word }

// intersect ends the open prefixes of the holders that a set lacks, before hash number n.
func (p *pass) intersect(set *holderSet) {
	c, s := p.core, &p.scan
	for i := range set.pairs {
		pr := &set.pairs[i]
		if holders := p.holdersOf(pr); holders != 0 {
			s.seen[pr.word] |= holders
			s.seen[s.index(pr.word, c.tiers.mediumOf(pr)+1)] |= holders
		}
	}
	if s.begun {
		p.endMissing(p.n)
	} else {
		s.begun = true
		p.beginOpen(set)
	}
	for i := range set.pairs {
		if pr := &set.pairs[i]; p.holdersOf(pr) != 0 {
			s.seen[pr.word], s.seen[s.index(pr.word, c.tiers.mediumOf(pr)+1)] = 0, 0
		}
	}
}

// countedOf returns the holders of a pair that count, of those that are live or fresh. Those of pairs that the query
// cannot know do not: a group that was learned after it began is not what its rules are about, and its medium may be new,
// too.
func (p *pass) countedOf(pr *pair, live, fresh bitmap) uint64 {
	switch isPredicted := pr.groupTier&predictedIn != 0; {
	case pr.word >= p.scan.words:
		return 0
	case isPredicted && pr.groupTier&^predictedIn >= p.oldest:
		return pr.bits & live[pr.word]
	case !isPredicted && p.core.tiers.uses[pr.groupTier].since <= p.tiersVersion:
		return pr.bits & fresh[pr.word]
	}
	return 0
}

// freshHolders returns the holders for which events count.
func (p *pass) freshHolders() bitmap {
	if p.lastKnown {
		return p.core.numbers.live
	}
	return p.core.numbers.fresh
}

// isFresh reports whether events have counted for a holder since the query began.
func (p *pass) isFresh(number uint32) bool {
	return p.lastKnown || p.core.numbers.isFresh(number, p.numbersVersion)
}

// holdersOf returns those that count and have the rules, in this hold of the lock.
func (p *pass) holdersOf(pr *pair) uint64 { return p.countedOf(pr, p.scan.live, p.scan.fresh) }

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

// beginOpen opens the prefixes of all holders of the first set.
func (p *pass) beginOpen(set *holderSet) {
	s := &p.scan
	for i := range set.pairs {
		pr := &set.pairs[i]
		if p.holdersOf(pr) == 0 {
			continue
		}
		for _, medium := range [2]uint8{allMedia, p.core.tiers.mediumOf(pr) + 1} {
			seen := &s.seen[s.index(pr.word, medium)]
			if *seen != 0 {
				s.open = append(s.open, openPrefix{pr.word, medium, *seen})
				*seen = 0 // another pair may have the same word
			}
		}
	}
}

// endMissing ends the open prefixes of holders that are not seen, after n hashes.
func (p *pass) endMissing(n uint32) {
	s := &p.scan
	left := s.open[:0]
	for _, a := range s.open {
		seen := s.seen[s.index(a.word, a.medium)]
		if missing := a.bits &^ seen; missing != 0 {
			p.endPrefix(a.word, a.medium, missing, n)
		}
		if a.bits &= seen; a.bits != 0 {
			left = append(left, a)
		}
	}
	s.open = left
}
