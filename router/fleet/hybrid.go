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
	lastFull *holderSet  // the last set at a block of the full group
	wantedTo int64       // hashes from here on cannot matter; -1: not known yet
	inFirst  []uint64    // holders by word that have some hash of the first block of the full group: a prefix may end in it
	fullEnds []prefixEnd // of the first group of full attention
	presence coordinator.Presence
	scratch  coordinator.Scratch
	media    [(maxMedia + 64) / 64]uint64 // bits of the media that the holder has, by number
	isFresh  bool                         // events count for the holder
}

// recordRuns records who holds the next hashes. Holders are followed as long as they have all blocks of the first
// group of full attention: when none is left, only the hashes up to LookEnd matter. If there is no such group, all hashes
// count as its first block.
func (p *pass) recordRuns(blob []byte) {
	c := p.core
	stride := math.MaxInt
	if p.rules.full >= 0 {
		stride = p.rules.coordinator.Stride(p.rules.full)
	}
	if p.n == 0 {
		p.hybrid.lastFull, p.hybrid.wantedTo = nil, -1
		p.hybrid.inFirst = slices.Grow(p.hybrid.inFirst[:0], int(p.scan.words))[:p.scan.words]
		clear(p.hybrid.inFirst)
	}
	var cur cursor
	for len(blob) >= p.hashLen {
		num, n := cur.next(c, blob, p.hashLen, p.at)
		blob = blob[n*p.hashLen:]
		if p.recordRun(c.sets.at(num), n, stride); p.finished {
			return
		}
	}
}

// recordRun records that the next n hashes have a set.
func (p *pass) recordRun(set *holderSet, n, stride int) {
	for range n {
		if last := len(p.runs) - 1; last >= 0 && p.runs[last].set == set {
			p.runs[last].end++
		} else {
			p.runs = append(p.runs, run{set, p.n + 1})
			if int(p.n) < stride {
				p.addFull(p.hybrid.inFirst, set)
			}
		}
		if p.hybrid.wantedTo < 0 && int(p.n+1)%stride == 0 && set != p.hybrid.lastFull {
			p.checkFull(set)
		}
		if p.n++; p.hybrid.wantedTo >= 0 && int64(p.n) >= p.hybrid.wantedTo {
			p.finished = true
			return
		}
	}
}

// checkFull is intersect for the first group of full attention, in all media together. q.n is the last hash of a block.
func (p *pass) checkFull(set *holderSet) {
	s := &p.scan
	p.hybrid.lastFull = set
	p.addFull(s.seen, set)
	n := p.n + 1 // in fine-grained mode a prefix may end inside of the block
	if s.begun {
		p.endMissing(n)
	} else {
		s.begun = true
		for word := range s.words {
			if s.seen[word] != 0 {
				s.open = append(s.open, openPrefix{word, allMedia, s.seen[word]})
			}
			p.endPrefix(word, allMedia, p.hybrid.inFirst[word]&^s.seen[word], n)
		}
	}
	clear(s.seen[:s.words])
	if len(s.open) == 0 {
		blockSize := int64(p.fleet.cfg.BlockSize)
		p.hybrid.wantedTo = (p.rules.coordinator.LookEnd(int64(n)*blockSize) + blockSize - 1) / blockSize
	}
}

// addFull adds to words the holders that a set has in the first group of full attention, or in any if there is none.
func (p *pass) addFull(words []uint64, set *holderSet) {
	for i := range set.pairs {
		pr := &set.pairs[i]
		isFull := p.rules.full < 0 || pr.groupTier&predictedIn != 0 || int(p.rules.storeGroups[p.core.tiers.groupOf(pr)]) == p.rules.full
		if holders := p.holdersOf(pr); isFull && holders != 0 {
			words[pr.word] |= holders
		}
	}
}

// findHits finds the prefix of each holder that may have one, by the rules of the groups, and sets the ends to them. It
// holds the lock for one holder at a time: all of them together can take long.
func (p *pass) findHits() {
	p.fleet.readLocked(p.beginHits)
	for _, e := range p.hybrid.fullEnds {
		for ; e.bits != 0; e.bits &= e.bits - 1 {
			p.fleet.readLocked(func() {
				p.oldest = max(p.oldest, p.core.oldest)
				p.findHit(e.word*64+uint32(bits.TrailingZeros64(e.bits)), e.n)
			})
		}
	}
}

// beginHits finds the holders that may have a prefix, and where it ends in the full group if there is one.
func (p *pass) beginHits() {
	p.endOpen()
	if !p.scan.begun && p.n > 0 { // the query ends inside of the first block
		for word, holders := range p.hybrid.inFirst {
			p.endPrefix(uint32(word), allMedia, holders, p.n)
		}
	}
	p.hybrid.fullEnds, p.ends = p.ends, p.hybrid.fullEnds[:0]
}

// findHit adds the ends of a holder, whose prefix in the first group of full attention, if there is one, has n hashes.
func (p *pass) findHit(number, n uint32) {
	scan := &p.hybrid
	if n < p.n {
		blockSize := int64(p.fleet.cfg.BlockSize)
		n = uint32(min(int64(p.n), p.rules.coordinator.LookEnd(int64(n)*blockSize)/blockSize+1))
	}
	scan.media, scan.isFresh = [len(scan.media)]uint64{}, p.isFresh(number)
	all := p.hit(number, n, -1)
	p.endPrefix(number/64, allMedia, 1<<(number%64), all)
	numMedia := 0
	for _, media := range scan.media {
		numMedia += bits.OnesCount64(media)
	}
	for w, media := range scan.media {
		for ; media != 0; media &= media - 1 {
			medium, hit := w*64+bits.TrailingZeros64(media), all
			if numMedia > 1 {
				hit = p.hit(number, n, medium)
			}
			p.endPrefix(number/64, uint8(medium)+1, 1<<(number%64), hit)
		}
	}
}

// hit returns the prefix of a holder in a medium, -1 for all together, in hashes. Blocks of the first n hashes are looked
// at.
func (p *pass) hit(number, n uint32, medium int) uint32 {
	rules := p.rules.coordinator
	presence := &p.hybrid.presence
	presence.NumHashes = int(p.n)
	presence.Bits = slices.Grow(presence.Bits[:0], rules.NumGroups())[:rules.NumGroups()]
	for g := range presence.Bits {
		words := int(p.n)/rules.KeyStride(g)/64 + 1
		presence.Bits[g] = slices.Grow(presence.Bits[g][:0], words)[:words]
		clear(presence.Bits[g])
	}
	from := uint32(0)
	for _, r := range p.runs {
		if from >= n {
			break
		}
		p.addRun(r.set, number, from, min(r.end, n), medium)
		from = r.end
	}
	blockSize := int64(p.fleet.cfg.BlockSize)
	length := int64(p.n) * blockSize
	tokens, err := rules.FindHit(presence, length-length%rules.Alignment(), true, &p.hybrid.scratch)
	if err != nil {
		return 0
	}
	return uint32(max(0, tokens) / blockSize)
}

// addRun adds the hashes [from, to), which have a set, to the presence of a holder.
func (p *pass) addRun(set *holderSet, number, from, to uint32, medium int) {
	word, bit := number/64, uint64(1)<<(number%64)
	for i := range set.pairs {
		pr := &set.pairs[i]
		if pr.word != word || pr.bits&bit == 0 || !p.hybrid.isFresh && pr.groupTier&predictedIn == 0 || p.countedOf(pr, p.core.numbers.live, p.freshHolders())&bit == 0 {
			continue
		}
		at := p.core.tiers.mediumOf(pr)
		if medium < 0 {
			p.hybrid.media[at/64] |= 1 << (at % 64)
		} else if int(at) != medium {
			continue
		}
		if pr.groupTier&predictedIn == 0 {
			p.addBits(int(p.rules.storeGroups[p.core.tiers.groupOf(pr)]), from, to)
			continue
		}
		for g := range p.hybrid.presence.Bits {
			p.addBits(g, from, to)
		}
	}
}

// addBits sets the positions of a store group whose keys are among the hashes [from, to). Position i is keyed by hash
// i*stride + stride - 1.
func (p *pass) addBits(group int, from, to uint32) {
	if group < 0 {
		return
	}
	stride := uint32(p.rules.coordinator.KeyStride(group))
	set := p.hybrid.presence.Bits[group]
	for i, end := from/stride, to/stride; i < end; {
		n := min(64-i%64, end-i)
		set[i/64] |= ^uint64(0) >> (64 - n) << (i % 64)
		i += n
	}
}
