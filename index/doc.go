// Package index is the pool index in memory: which block hashes exist, for which
// group and rank. It is bounded in bytes and entries and evicts what was not used
// for longest.
//
// # Glossary
//
//   - key: the hash of a chunk, 1 to 64 bytes. All keys of an index have one length.
//   - place: a group on one rank, numbered by the caller.
//   - entry: one key, however many places hold it.
//   - coverage, class: the set of places that hold an entry; equal sets are one
//     class, numbered in two bytes.
//   - slot: the position of an entry in the log. segment: a stretch of the log.
//   - run: consecutive keys of a lookup with the same coverage.
//   - stretch: consecutive slots.
//   - span: a stretch whose entries were used last at the same time.
//   - group of slots: 64 slots of a segment, the first one a multiple of 64. If all have one
//     class, that is kept once, beside a digest of their keys. Groups in Config and Coverage are
//     those of the pool.
//   - preallocated slot: a free one that is kept for the next keys of one chain.
//   - link: what is known of a key's place in its chain, its number and the key in
//     front of it. Linked: that key is in the slot in front. head: the record of a
//     key that is not linked. sure: a lookup has confirmed the link.
//   - trail: what is found along sure links, from one key down to its chain's first.
//   - bucket: ten cells of the table in one cache line. tag: 16 bits of a key's
//     hash, by which a cell is chosen.
//
// # Layout
//
//	table (hash → slot)            log
//	directory → page ─┐            segment 0  keys  [k0][k1][k2] ... 4096 records
//	256 buckets of    ├──────────▶            class  c0  c1  c2
//	10 tags, 10 slots ┘                       links  two bits each, and the heads
//	                               segment 1 ...
//
//	for writers only               spans of each segment, in two lists by time of
//	                               use; free slots; slabs, the memory of all this
//
// Requests are chains and chains are stored in order, so the keys of a stored
// chain lie one after the other in the log. A lookup asks the table once where its
// chain begins. From there it compares the request with the log while the class stays
// the same: whole groups of slots by their digests, all else as two arrays of keys.
// Where they part, it asks the table again. Where keys do not follow each other it asks
// for 16 of them at a time, and has the buckets and records of the next ones fetched
// meanwhile.
//
// What the slots of a group have in common is kept once: their class, the digest of their
// keys, and that their links are all there. That is some 20 cache lines a segment. Of a chain
// in order lookups read no more.
//
// # Invariants
//
//   - A slot has a class other than noClass exactly while it holds an entry; it is
//     then in the table once and in one span.
//   - Readers look at the record of a slot only if it has a class, so that a writer
//     may fill a free one while they go on.
//   - Presence is decided by comparing whole keys, or those of a whole group by their digest
//     (see Config.CompareKeys). Hashes, tags and positions are hints. Hashes and digests are
//     keyed with secrets.
//   - The class and the digest of a group of slots are those of its entries, or there are none.
//     Both change in the same hold of mu as its entries.
//   - Only occupied slots have links. A linked slot follows an occupied one in its
//     segment and has the next number; any other whose number is known has a head.
//   - A link is what some store said since its entry was stored. A sure one does not
//     change, whatever is stored, until its entry goes; it outlives the key in front.
//   - The memory never exceeds MaxBytes: a slab is added only if the table that its
//     slots may need fits as well, the heads, the classes, and a span for every 128 slots.
//   - A class is freed when no entry has it and no batch is under way that may choose it.
//
// # Eviction
//
// Entries are evicted one by one from the tail of the span that was used longest
// ago, so that the ends of cold chains go before their beginnings. Spans that were
// found since they were stored are given a bonus that is learnt (policy.go). What
// lookups use is queued and taken into account by the next store.
//
// A log that is full keeps a 32nd of its slots free, so that what is evicted grows
// together before it is used again. A store that finds its chain in pieces moves
// them into one: that is all the compaction there is, in steps of one batch.
//
// Chains that grow block by block, many in turn, would lie interleaved. So a store may say
// which key is in front of its first (Writer.Behind). If that is the newest of its chain, the
// new key is put into the next slot, and the span grows by it and becomes the newest. If that
// slot is taken, a stretch of free slots is preallocated for the chain elsewhere. At most a
// quarter of the slots is preallocated, and half of the free ones of a full log; what chains
// have not used for long is taken back before an entry is evicted for it.
//
// # What a message may cost
//
// A store evicts at most two entries for each of its keys, the second one only while the
// free slots are made. Spans and classes hardly cost entries:
//
//   - Classes have a share of the memory, a 64th. A store that needs one more is refused.
//   - If all spans that there may be are used, neighbours in the log are joined, those used
//     at the closest times. New keys join the span in front of them, and the last entry of a
//     span fills a hole in it. Only if that leaves no span unused, a store evicts the smallest
//     one that it has looked at, if that has at most 256 entries.
//   - If many spans are unused, stores empty the last chunk of them step by step and release it,
//     so that the log has the memory again.
//
// The work of a batch is bounded by its keys, not by the size of the index, save for
// copies that are made when something has doubled: of the table's directory, 12 bytes for
// about 1,600 entries, and of the list of segments, 16 bytes for 4,096 entries. Lookups
// and stores count their work (work.go). A trace stops when it has done as much as it was
// given, and can be resumed.
//
// # Dumps
//
// A dump copies what the index holds, for a file that a later start loads (dump.go). It walks along the
// two lists of spans from the span used least recently to the newest, always in the list whose next
// span is older. Each list keeps which span comes next while spans are moved, split and joined, so no
// hold has to last and nothing is sorted. A hold copies spans as runs of keys of one class and one
// chain. It is no hold of mu, so readers do not wait for it.
//
// What Evict, ResetPlaces and Reset remove meanwhile is kept (dump_removals.go), also keys that are not
// there: the dump may have copied them before they were evicted to make room. The next hold puts it in
// front of what it copies. A reset of places counts as a whole when it ends, also if it was given up
// or is under way in the last hold. So a loaded index never has a key at a place where it was removed
// before the last hold.
//
// Lookups move what they find to the newest end. From the first span on that was used since the dump
// began, a dump marks the spans and copies each once more. It copies at most twice as many keys as
// there were when it began, and a million more.
//
// A load (load.go) stores runs with the time and in the list that they had, and the policy learns
// nothing from it. So the loaded index evicts in the same order. Links are stored again as claims of
// the writer: lookups have to confirm them anew.
//
// # Files
//
//	index.go         Index, Config, counters
//	gate.go          the lock between readers and writers; mutex.go the other locks
//	class.go         sets of places; classes.go their numbers and memory
//	log.go           segments and slots; memory*.go slabs
//	free.go          free slots; prealloc.go those that are kept for chains that grow
//	table.go         from hash to slot; hash.go the keyed hash; find.go batches of keys
//	probe.go         lookups; touch.go what they have found, for the next store
//	store.go         stores; evict.go evictions and evicts
//	reset_places.go  resets of places
//	span.go          spans; span_refs.go the segments' lists of them
//	span_reserve.go  the memory of spans; span_join.go what is done if they are few
//	policy.go        the order of eviction of cold and hot spans
//	dump.go          dumps; dump_removals.go what is removed meanwhile; load.go loads
//	links.go         chains; confirm.go links that become sure; trail.go lookups by anchors
//	slotset.go       sets of slots
//	work.go          the units in which work is counted
//	holds_*.go       how long each lock is held, in builds that record it
//	interleave_*.go  the atomics and locks; in test builds a test orders their operations
//
// # Concurrency
//
// Writers alternate, 64 keys each. They work out what changes while lookups go
// on, and show it to them under a lock of readers and writers held for some microseconds.
// A Coverage is immutable. No hold grows with the keys of a call: each is bounded by what
// it counts, under mu for writing slots, heads and cells of the directory, under touchMu
// stretches, otherwise the units of work.go.
//
//	lock       held by            for                                     at most
//	writing    Store              a batch of 64 keys: what it evicts,     575,000
//	                              joins, splits, applies and gives back
//	           Evict              a batch of 64 keys                      126,100
//	           PlacesReset.Step   slots to look at, and 64 to change      135,200
//	           PlacesReset.End    a list of those under way                     0
//	           BeginResetPlaces   the same                                      0
//	           Confirm            keys that are not sure yet                6,800
//	           End, Use           256 stretches, if the lock is free       19,200
//	           Before             one key                                      48
//	           Stats              an exchange                                   0
//	           Dump               spans, for 8,192 units, and one more       246,000
//	           Dump, at first     256 stretches                               19,200
//	           Load               a batch, as Store, Evict or Step           575,000
//	           Reset              the list of slabs
//	mu         publish            a batch, its links and groups            37,000
//	           takeAway           a batch and its links                    16,500
//	           remove             64 slots and their links                    576
//	           setClasses         a group of slots                            128
//	           Before, fillHole   one key and its link                        513
//	           confirmRun         words of links                               65
//	           split              the pages' places in the directory           64
//	           others             an exchange                                   0
//	mu, read   Probe, Trace,      2,048 units, then writers come in         6,800
//	           Recite, Confirm    between; and the run or the 384
//	                              scattered keys under way
//	           Found              a key and 256 stretches                     320
//	touchMu    End, Use           256 stretches, and growing the queue     33,100
//	           others             an exchange                                   0
//
// The bounds are those of the worst case, and TestHoldsAreBounded has their sums. Most holds
// that it meets are a tenth of that or less. Two kinds of holds of writing grow with the index:
// copies of the lists that double, 16 bytes for 4,096 entries or 12 for 1,600, and the list of
// slabs at a reset. Neither holds mu. New memory is touched before readers wait for it: a
// segment's classes when it is made, its keys under writing.
//
// The same lookups through lookup.Service take no other lock. Builds with the tag
// hitline_holds record the holds, in time and in what is counted:
//
//	go test -tags hitline_holds -run 'TestHolds' -bench Holds ./index
//
// Builds with the tag hitline_interleave run the gate in every order of its atomic operations,
// and small cases of stores, evicts, resets, lookups and traces in every order of their holds:
//
//	go test -tags hitline_interleave -run Interleaved ./index
//
// # Ownership
//
// Keys passed in are only borrowed; nothing returned points into the log.
package index
