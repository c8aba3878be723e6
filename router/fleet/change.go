package fleet

import (
	"cmp"
	"slices"
)

// action is what a change does to a set.
type action uint8

const (
	actionStore   action = iota // add a holder in a group and tier
	actionPredict               // add a holder in an epoch, and remove it from all others
	actionRemove                // remove a holder from some groups and tiers, and from all epochs
)

// change is what one call of a holder does to the sets of its blocks, with the lock held once.
type change struct {
	action     action
	number     uint32   // of the holder
	groupTier  uint32   // of actionStore; predictedIn and the epoch for actionPredict
	groupTiers []uint32 // of actionRemove
	oldest     uint32   // predictions of earlier epochs have expired
	room       int      // how many entries more the holder may have
	made       int      // new records
	appended   int      // those of them that are at the end of the log
	before     uint32   // position where the first of these would follow its chain

	// Blocks that follow each other mostly have one set. Its outcome is found once: its new set stays, as no change takes
	// blocks out of the sets that it makes.
	lastFrom *holderSet
	last     outcome
}

// outcome is what a change makes of a set. Entries are those of the holder.
type outcome struct {
	to      *holderSet
	removed int32  // entries that are removed but for predicted ones
	epoch   uint32 // of the prediction that is removed, 0: none
	added   bool   // an entry is added
}

// grows reports whether the holder has an entry more.
func (out *outcome) grows() bool { return out.added && out.epoch == 0 }

// apply returns the outcome of a change of a set. A new set has no references yet. It fails with errNoMemory or errNoRoom.
func (c *core) apply(from *holderSet, ch *change) (outcome, error) {
	if ch.lastFrom == from && (ch.room > 0 || !ch.last.grows()) {
		return ch.last, nil
	}
	pairs, out := c.changed(from, ch)
	if ch.room <= 0 && out.grows() {
		return outcome{}, errNoRoom
	}
	hash := c.sets.hash(pairs)
	if out.to = c.sets.find(pairs, hash); out.to == nil {
		if !c.fits(sizeOfSet(len(pairs)) + internBytes + setChunkLen*16) {
			return outcome{}, errNoMemory
		}
		out.to = c.sets.add(pairs, hash)
	}
	ch.lastFrom, ch.last = from, out
	return out, nil
}

// changed returns the content of a set after a change, in a buffer that the next call reuses. What does not count any
// more is left out: no set that is made after a holder number was retired has that number.
func (c *core) changed(from *holderSet, ch *change) ([]pair, outcome) {
	out := outcome{added: ch.action != actionRemove}
	word, bit := ch.number/64, uint64(1)<<(ch.number%64)
	pairs := c.pairs[:0]
	for i := range from.pairs {
		p := from.pairs[i]
		if p.bits = c.counting(&p, ch.oldest); p.bits == 0 {
			continue
		}
		if p.word == word && p.bits&bit != 0 {
			switch predicted := p.groupTier&predictedIn != 0; {
			case p.groupTier == ch.groupTier && ch.action != actionRemove:
				out.added = false
			case predicted && ch.action != actionStore:
				out.epoch = p.groupTier &^ predictedIn
				p.bits &^= bit
			case ch.action == actionRemove && slices.Contains(ch.groupTiers, p.groupTier):
				out.removed++
				p.bits &^= bit
			}
			if p.bits == 0 {
				continue
			}
		}
		pairs = append(pairs, p)
	}
	if out.added {
		pairs = addBit(pairs, ch.groupTier, word, bit)
	}
	c.pairs = pairs
	return pairs, out
}

// counting returns the holders of a pair that are not retired, none if it has expired.
func (c *core) counting(p *pair, oldest uint32) uint64 {
	if p.groupTier&predictedIn != 0 && p.groupTier&^predictedIn < oldest {
		return 0
	}
	return p.bits & c.numbers.live[p.word]
}

// addBit adds a holder in a group and tier.
func addBit(pairs []pair, groupTier, word uint32, bit uint64) []pair {
	i, found := slices.BinarySearchFunc(pairs, pair{groupTier: groupTier, word: word}, func(a, b pair) int {
		return cmp.Or(cmp.Compare(a.groupTier, b.groupTier), cmp.Compare(a.word, b.word))
	})
	if found {
		pairs[i].bits |= bit
		return pairs
	}
	return slices.Insert(pairs, i, pair{groupTier, word, bit})
}
