// Package index is the pool index in memory: which block hashes exist, for which
// group and rank. It is bounded in bytes and entries and evicts what was used least
// recently. No promise: it is internal to this module, and its API may change in any release.
//
// Requests are chains and chains are stored in order, so the keys of a stored
// chain lie one after the other in the log. A lookup asks the table once where its
// chain begins. From there it compares the request with the log while the class stays
// the same: whole groups of slots by their digests, all else as two arrays of keys.
// Where they part, it asks the table again. Where keys do not follow each other it asks
// for 16 of them at a time, and has the buckets and records of the next ones fetched
// meanwhile.
//
// # Glossary
//
//   - key: the hash of a chunk, 1 to 64 bytes. All keys of an index have one length.
//   - place: a group on one rank, numbered by the caller.
//   - entry: one key, however many places hold it.
//   - coverage, class: the set of places that hold an entry; equal sets are one
//     class, numbered in two bytes.
//   - slot: the position of an entry in the log. segment: 4,096 slots of it.
//   - row: 8 consecutive slots, which have one time of use and are evicted together.
//   - group of slots: 64 slots of a segment, the first one a multiple of 64. If all have one
//     class, that is kept once, with a digest of their keys. Groups in Config and Coverage are
//     those of the pool.
//   - run: consecutive keys of a lookup with the same coverage.
//   - stretch: consecutive slots.
//   - bucket: ten cells of the table in one cache line. tag: 16 bits of a key's
//     hash, by which a cell is chosen.
//
// # Layout
//
//	table (hash → slot)            log
//	directory → page ─┐            segment 0  keys  [k0][k1][k2] ... 4096 records
//	256 buckets of    ├──────────▶            class  c0  c1  c2
//	10 tags, 10 slots ┘            segment 1 ...
//
//	for writers only               the time of use of each row; a heap of the segments by
//	                               their oldest row; free slots; slabs, the memory of all this
//
// What the slots of a group have in common is kept once: their class and the digest of their
// keys. Of a chain in order lookups read no more than that: some 20 cache lines a segment.
//
// # Invariants
//
//   - A slot has a class other than noClass exactly while it holds an entry, and is
//     then in the table once.
//   - Readers look at the record of a slot only if it has a class, so that a writer
//     may fill a free one while they go on.
//   - Presence is decided by comparing whole keys, or those of a whole group by their digest
//     (see Index). Hashes, tags and positions are hints. Hashes and digests are
//     keyed with secrets.
//   - The class and the digest of a group of slots are those of its entries, or there are none.
//     Both change in the same hold of mu as its entries.
//   - The memory never exceeds MaxBytes: a slab is added only if the table that its
//     slots may need fits as well, and the classes.
//   - A class is freed when no entry has it and no batch is under way that may choose it.
//
// # Eviction
//
// The row used least recently goes first, and of rows used at one time the last in its
// segment, so that the end of a chain goes before its beginning. A row is as young as the
// youngest of its entries. A store evicts none of its own keys: if nothing older is left, rows
// that were used since it began go, and what only shares a row with its keys. What lookups find
// is queued, and applied by the next store.
//
// A log that is full keeps a 32nd of its slots free, so that what is evicted grows
// together before it is used again. A store that finds its chain in pieces moves
// them into one: that is all the compaction there is, in steps of one batch.
//
// # What a message may cost
//
// A run of stores evicts at most two entries for each key, the second one only while the free
// slots are made, and 256 more. Classes have a share of the memory, a 64th; a store that needs
// one more is refused.
//
// What a batch takes is bounded by its keys, save for copies that are made when something
// has doubled: of the table's directory, 12 bytes for about 1,600 entries, and of the list of
// segments, 16 bytes for 4,096 entries.
//
// # Files
//
//	index.go         Index, Config, counters
//	gate.go          the lock between readers and writers
//	class.go         sets of places; classes.go their numbers and memory
//	log.go           segments and slots; memory*.go slabs; free.go free slots
//	table.go         from hash to slot; hash.go the keyed hash; find.go batches of keys
//	probe.go         lookups; touch.go what they have found, for the next store
//	store.go         stores; evict.go evictions and evicts; last_use.go which row is the oldest
//	use_times.go     how long ago that was
//	reset_places.go  resets of places
//	slotset.go       sets of slots
//
// # Concurrency
//
// Writers take turns, 64 keys each, under the lock writing. They work out what changes while lookups go on, and show it
// to them under mu, a lock of readers and writers, which they hold for some microseconds. A lookup holds mu for about
// as long as comparing 2,048 keys takes, some five microseconds, then lets writers in. touchMu guards a queue of what
// lookups have found. Locks are taken in the order writing, mu, touchMu. A Coverage is immutable. New memory is touched
// before readers wait for it: a segment's classes when it is made, its keys under writing.
//
// # Ownership
//
// Keys passed in are only borrowed; nothing returned points into the log.
package index
