package coordinator

import "math/bits"

// useRemembered makes the wanted positions present whose blocks the store remembers. In each group it ends when
// limit positions are left that it does not remember, or some more: those behind stay wanted.
func (l *storeLookup) useRemembered(store KeyStore, limit int) {
	for g := range l.c.groups {
		left := 0
		for w, wanted := range l.wanted[g] {
			if left >= limit {
				break
			}
			if wanted == 0 {
				continue
			}
			blocks := store.Remembered(g, l.hashes, l.hashOf(g, w), l.c.KeyStride(g), wanted)
			l.wanted[g][w] &^= blocks
			l.undetermined[g][w] &^= blocks // which counted as present
			left += bits.OnesCount64(wanted &^ blocks)
		}
	}
}

// remember has the store remember which of the wanted positions its answers made present.
func (l *storeLookup) remember(store KeyStore) {
	for g := range l.c.groups {
		for w, wanted := range l.wanted[g] {
			if found := wanted & l.presence.Bits[g][w] &^ l.undetermined[g][w]; found != 0 {
				store.Remember(g, l.hashes, l.hashOf(g, w), l.c.KeyStride(g), found)
			}
		}
	}
}

// hashOf returns the index in hashes of the hash of the first position of word w.
func (l *storeLookup) hashOf(g, w int) int { return KeyIndex(64*w, l.c.KeyStride(g)) }
