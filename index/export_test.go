package index

// What the tests of package index_test need from inside.

// RaceEnabled says that the race detector is on.
const RaceEnabled = raceEnabled

// SetHash replaces the hash of an index that is still empty.
func SetHash(x *Index, hash func(key []byte) uint64) { x.badHash = hash }
