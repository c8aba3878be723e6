package coordinator

import "math/bits"

// BlockStore is a KeyStore that knows some blocks to be present without being asked for their keys. In
// both methods blocks has a bit for each block of group g in question: the hash of bit i is
// hashes.At(first + i*stride). hashes are those of the lookup, borrowed.
type BlockStore interface {
	KeyStore
	// Known returns the blocks that are known to be on all ranks. Their keys are not asked for.
	Known(g int, hashes Hashes, first, stride int, blocks uint64) uint64
	// Found is called with the blocks that the last call of Exists has found on all ranks.
	Found(g int, hashes Hashes, first, stride int, blocks uint64)
}

// useKnown makes the wanted positions present whose blocks the store knows. In each group it ends when limit
// positions are left that it does not know, or some more: those behind stay wanted.
func (l *storeLookup) useKnown(store KeyStore, limit int) {
	known, ok := store.(BlockStore)
	if !ok {
		return
	}
	for g := range l.c.groups {
		unknown := 0
		for w, wanted := range l.wanted[g] {
			if unknown >= limit {
				break
			}
			if wanted == 0 {
				continue
			}
			blocks := known.Known(g, l.hashes, l.hashOf(g, w), l.c.KeyStride(g), wanted)
			l.wanted[g][w] &^= blocks
			l.undetermined[g][w] &^= blocks // which counted as present
			unknown += bits.OnesCount64(wanted &^ blocks)
		}
	}
}

// tellFound tells the store which of the wanted positions its answers made present.
func (l *storeLookup) tellFound(store KeyStore) {
	known, ok := store.(BlockStore)
	if !ok {
		return
	}
	for g := range l.c.groups {
		for w, wanted := range l.wanted[g] {
			if found := wanted & l.presence.Bits[g][w] &^ l.undetermined[g][w]; found != 0 {
				known.Found(g, l.hashes, l.hashOf(g, w), l.c.KeyStride(g), found)
			}
		}
	}
}

// hashOf returns the index in hashes of the hash of the first position of word w.
func (l *storeLookup) hashOf(g, w int) int { return KeyIndex(64*w, l.c.KeyStride(g)) }
