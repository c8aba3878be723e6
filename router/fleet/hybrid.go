package fleet

import (
	"math"
	"math/bits"
	"slices"

	"github.com/hitline/hitline/coordinator"
)

// run is a run of hashes with one set of holders. It begins where the one before ends.
type run struct {
	set *holderSet
	end uint32 // hashes
}

// hybridScan is the working memory of a query about several groups, or other than full attention.
type hybridScan struct {
	checked  *holderSet  // the last set at a block of the full group
	wantedTo int64       // hashes from here on cannot matter; -1: not known yet
	first    []uint64    // holders by word that have some hash of the first block of the full group: a prefix may end in it
	ends     []prefixEnd // of the first group of full attention
	presence coordinator.Presence
	scratch  coordinator.Scratch
	media    [(maxMedia + 64) / 64]uint64 // bits of the media that the holder has, by number
	isFresh  bool                         // events count for the holder
}

// recordRuns records who holds the next hashes. Holders are followed as long as they have all blocks of the first
// group of full attention: when none is left, only the hashes up to LookEnd matter. If there is no such group, all hashes
// count as its first block.
func (q *pass) recordRuns(blob []byte) {
	c := q.core
	stride := math.MaxInt
	if q.rules.full >= 0 {
		stride = q.rules.coordinator.Stride(q.rules.full)
	}
	if q.n == 0 {
		q.hybrid.checked, q.hybrid.wantedTo = nil, -1
		q.hybrid.first = slices.Grow(q.hybrid.first[:0], int(q.scan.words))[:q.scan.words]
		clear(q.hybrid.first)
	}
	var cur cursor
	for len(blob) >= q.hashLen {
		num, n := cur.next(c, blob, q.hashLen, q.at)
		blob = blob[n*q.hashLen:]
		if q.recordRun(c.sets.at(num), n, stride); q.finished {
			return
		}
	}
}

// recordRun records that the next n hashes have a set.
func (q *pass) recordRun(set *holderSet, n, stride int) {
	for range n {
		if last := len(q.runs) - 1; last >= 0 && q.runs[last].set == set {
			q.runs[last].end++
		} else {
			q.runs = append(q.runs, run{set, q.n + 1})
			if int(q.n) < stride {
				q.addFull(q.hybrid.first, set)
			}
		}
		if q.hybrid.wantedTo < 0 && int(q.n+1)%stride == 0 && set != q.hybrid.checked {
			q.checkFull(set)
		}
		if q.n++; q.hybrid.wantedTo >= 0 && int64(q.n) >= q.hybrid.wantedTo {
			q.finished = true
			return
		}
	}
}

// checkFull is intersect for the first group of full attention, in all media together. q.n is the last hash of a block.
func (q *pass) checkFull(set *holderSet) {
	s := &q.scan
	q.hybrid.checked = set
	q.addFull(s.seen, set)
	n := q.n + 1 // in fine-grained mode a prefix may end inside of the block
	if s.begun {
		q.endMissing(n)
	} else {
		s.begun = true
		for word := range s.words {
			if s.seen[word] != 0 {
				s.alive = append(s.alive, candidates{word, allMedia, s.seen[word]})
			}
			q.end(word, allMedia, q.hybrid.first[word]&^s.seen[word], n)
		}
	}
	clear(s.seen[:s.words])
	if len(s.alive) == 0 {
		blockSize := int64(q.fleet.cfg.BlockSize)
		q.hybrid.wantedTo = (q.rules.coordinator.LookEnd(int64(n)*blockSize) + blockSize - 1) / blockSize
	}
}

// addFull adds to words the holders that a set has in the first group of full attention, or in any if there is none.
func (q *pass) addFull(words []uint64, set *holderSet) {
	for i := range set.pairs {
		p := &set.pairs[i]
		isFull := q.rules.full < 0 || p.groupTier&predictedIn != 0 || int(q.rules.storeGroups[q.core.tiers.groupOf(p)]) == q.rules.full
		if holders := q.among(p); isFull && holders != 0 {
			words[p.word] |= holders
		}
	}
}

// findHits finds the prefix of each holder that may have one, by the rules of the groups, and sets the ends to them. It
// holds the lock for one holder at a time: all of them together can take long.
func (q *pass) findHits() {
	q.fleet.readLocked(q.beginHits)
	for _, e := range q.hybrid.ends {
		for ; e.bits != 0; e.bits &= e.bits - 1 {
			q.fleet.readLocked(func() {
				q.oldest = max(q.oldest, q.core.oldest)
				q.findHit(e.word*64+uint32(bits.TrailingZeros64(e.bits)), e.n)
			})
		}
	}
}

// beginHits finds the holders that may have a prefix, and where it ends in the full group if there is one.
func (q *pass) beginHits() {
	q.endAlive()
	if !q.scan.begun && q.n > 0 { // the query ends inside of the first block
		for word, holders := range q.hybrid.first {
			q.end(uint32(word), allMedia, holders, q.n)
		}
	}
	q.hybrid.ends, q.ends = q.ends, q.hybrid.ends[:0]
}

// findHit adds the ends of a holder, whose prefix in the first group of full attention, if there is one, has n hashes.
func (q *pass) findHit(number, n uint32) {
	scan := &q.hybrid
	if n < q.n {
		blockSize := int64(q.fleet.cfg.BlockSize)
		n = uint32(min(int64(q.n), q.rules.coordinator.LookEnd(int64(n)*blockSize)/blockSize+1))
	}
	scan.media, scan.isFresh = [len(scan.media)]uint64{}, q.isFresh(number)
	all := q.hit(number, n, -1)
	q.end(number/64, allMedia, 1<<(number%64), all)
	numMedia := 0
	for _, media := range scan.media {
		numMedia += bits.OnesCount64(media)
	}
	for w, media := range scan.media {
		for ; media != 0; media &= media - 1 {
			medium, hit := w*64+bits.TrailingZeros64(media), all
			if numMedia > 1 {
				hit = q.hit(number, n, medium)
			}
			q.end(number/64, uint8(medium)+1, 1<<(number%64), hit)
		}
	}
}

// hit returns the prefix of a holder in a medium, -1 for all together, in hashes. Blocks of the first n hashes are looked
// at.
func (q *pass) hit(number, n uint32, medium int) uint32 {
	rules := q.rules.coordinator
	p := &q.hybrid.presence
	p.NumHashes = int(q.n)
	p.Bits = slices.Grow(p.Bits[:0], rules.NumGroups())[:rules.NumGroups()]
	for g := range p.Bits {
		words := int(q.n)/rules.KeyStride(g)/64 + 1
		p.Bits[g] = slices.Grow(p.Bits[g][:0], words)[:words]
		clear(p.Bits[g])
	}
	from := uint32(0)
	for _, r := range q.runs {
		if from >= n {
			break
		}
		q.addRun(r.set, number, from, min(r.end, n), medium)
		from = r.end
	}
	blockSize := int64(q.fleet.cfg.BlockSize)
	length := int64(q.n) * blockSize
	tokens, err := rules.FindHit(p, length-length%rules.Alignment(), true, &q.hybrid.scratch)
	if err != nil {
		return 0
	}
	return uint32(max(0, tokens) / blockSize)
}

// addRun adds the hashes [from, to), which have a set, to the presence of a holder.
func (q *pass) addRun(set *holderSet, number, from, to uint32, medium int) {
	word, bit := number/64, uint64(1)<<(number%64)
	for i := range set.pairs {
		p := &set.pairs[i]
		if p.word != word || p.bits&bit == 0 || !q.hybrid.isFresh && p.groupTier&predictedIn == 0 || q.counting(p, q.core.numbers.live, q.freshHolders())&bit == 0 {
			continue
		}
		at := q.core.tiers.mediumOf(p)
		if medium < 0 {
			q.hybrid.media[at/64] |= 1 << (at % 64)
		} else if int(at) != medium {
			continue
		}
		if p.groupTier&predictedIn == 0 {
			q.addBits(int(q.rules.storeGroups[q.core.tiers.groupOf(p)]), from, to)
			continue
		}
		for g := range q.hybrid.presence.Bits {
			q.addBits(g, from, to)
		}
	}
}

// addBits sets the positions of a store group whose keys are among the hashes [from, to). Position i is keyed by hash
// i*stride + stride - 1.
func (q *pass) addBits(group int, from, to uint32) {
	if group < 0 {
		return
	}
	stride := uint32(q.rules.coordinator.KeyStride(group))
	set := q.hybrid.presence.Bits[group]
	for i, end := from/stride, to/stride; i < end; {
		n := min(64-i%64, end-i)
		set[i/64] |= ^uint64(0) >> (64 - n) << (i % 64)
		i += n
	}
}
