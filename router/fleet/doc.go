// Package fleet records which engine holds which KV cache blocks, and finds who holds the longest
// prefix of a prompt: for a router that chooses an engine. An [events.Follower] tells one [Holder] of
// each engine, or data-parallel rank of it; a router without events calls [Holder.Predict]. No
// promise: it is internal to this module, and its API may change in any release. What package router
// shows of it is promised there.
//
// # Layout
//
//	table (key → position)     log                          sets
//	directory → buckets ─────▶ segment 0  keys [k0][k1] …   1  (GPU: engines 0, 3) (CPU: engine 0)
//	                                      sets  1   1       2  (GPU: engine 3)
//	                           segment 1  …                 …
//
// Prompts are chains, and the records of a chain follow each other in the log. A block goes next to its parent, or if
// that is not told, next to the last block that its holder has stored, provided that the record there is dead.
// Otherwise it goes to the end of the log, where room is kept after it. So prompts whose blocks come one by one, in
// turns with those of others, lie together, too. That is only about speed: the table has every block.
//
// A lookup compares its next keys with the next records of the log, all at once, and asks the table only where they
// part. While the set stays the same nothing else is done. Where it changes, the prefixes of the holders that it lacks
// end.
//
// # A query
//
// Three blocks are asked about. Engine a has them on the GPU; b has the first on the GPU, and the second in CPU memory.
// A prefix is open until a block is missing, in a medium or in all together:
//
//	hash                h0           h1                h2
//	its set             (GPU: a b)   (GPU: a)(CPU: b)  (GPU: a)
//	open: in all        a b          a b               a
//	      on the GPU    a b          a                 a
//	ends                             b: 1 on the GPU   b: 2 in all
//
// At the end those of a end, too, after 3 in both. The answer is a 3 (GPU 3), b 2 (GPU 1): ends in order, the longest
// first, with the names of holders and media. Each step is of 64 holders at a time.
//
// By the rules of several groups a pass records runs of hashes with one set. Open are the prefixes in the first group of
// full attention. When none is left, only some more hashes can matter. Then package coordinator is asked for each holder
// and medium.
//
// # Glossary
//
//   - key: the short form of a block hash, 64 bits. Answers are as good as these are unique.
//   - group: a KV cache group, as events number them. tier: the medium that holds a block, with its locality and
//     ownership. An entry is one block of one holder in one group and tier, or predicted.
//   - statement: what holders have said of their groups. rules: how blocks make a prefix, which follows from a
//     statement. A query has a pass for each of the rules that are in use.
//   - set: who holds a block where. Sets have numbers.
//   - record: a key and the number of its set. position: where a record is in the log.
//   - segment: 4,095 records of the log. bucket: 1,024 slots of the hash table.
//   - number (of a holder): its bit in the sets. A holder that is cleared gets another one.
//   - retired: a holder number that no holder has, but sets may have. swept: a set without retired numbers.
//   - epoch: a quarter of PredictTTL, counted from New.
//   - dead record: one that the table does not have. empty record: a live one whose set is empty. room: dead records
//     after a chain.
//
// # Files
//
//	fleet.go, holder.go, result.go    the API, with config.go; clear_tier.go what visits all blocks of a holder
//	log.go, table.go, sets.go         records, keys, sets
//	numbers.go, media.go, epochs.go   holders as bits; groups and tiers as numbers; predictions
//	core.go, change.go                one change of one block
//	collect.go, shrink.go             sweeping and compaction; what goes at the memory bound
//	groups.go                         what holders say of their groups
//	query.go, cursor.go, answer.go    lookups; hybrid.go those of several groups, by the rules of groups.go
//	snapshot.go, load.go              the state as a stream of bytes
//
// # What counts
//
// A holder never counts for a block that its events say it may have lost. A stale holder counts for nothing but what is
// predicted. A removal that leaves out the group or the medium removes from all, and what is predicted with it.
//
// With one group of full attention a prefix is the leading blocks. Otherwise package coordinator decides by the rules
// of vLLM, for each holder as if the others were not there. Groups are those of Config.Groups or are learned of each
// holder: their number, kind, window and block size from its stores, empty ones too. What one holder has stored decides
// about no other one, and is forgotten when it is cleared. Groups that a holder has not named do not count for it:
// describe groups if its first blocks may be asked about before it has named all. Kinds whose parameters events do not
// tell, such as chunked local attention, count as full attention unless they are described: a prefix is then too short,
// never too long. Mamba's hits end with a whole block unless it is described. A query is about whole blocks, and all of
// them may be held: nothing is subtracted for the token that an engine computes at least.
//
// Parts of blocks, which some engines cache, are stored as they come. A query finds none: it looks only for hashes at
// the ends of whole blocks, which no part has. If the rules let hits end inside of a block, it finds those that end
// with a whole hash, as the engine does.
//
// # Invariants
//
//   - A key is in the table exactly if a record of it is live. There is one such record.
//   - The references of a set number are its live records. A number without them is free.
//   - Sets are immutable. A set that is made after a holder number was retired does not have it. So the number is
//     free once each set that there was when it was retired has been visited.
//   - A holder number with a bit in some set is marked as used.
//   - The number of entries of a holder is exact, expired predictions left out.
//
// # Memory
//
// A block takes 12 bytes in the log, with room up to 18, and 10 to 20 in the table: 29 in all at 10 million blocks.
// A set takes 128 bytes and 18 for each pair of a group and tier and 64 holders. Config.MaxBytes bounds all of it,
// as [Stats] counts it. A change that needs more first collects what can be freed. Then it drops the oldest
// predictions, or, for events, blocks that only the largest holders have: of predictions and the largest holder what
// is more. The size of a holder is its blocks and its part of the sets. So a holder that has much cannot keep others
// from what they store. A change fails with ErrFull if there is nothing left to drop.
//
// Clear and Close cost the same whatever the holder has: they retire its number. What it leaves is freed by steps of
// bounded length, one with each later step of a change. Once more than a quarter of the records is dead each change
// moves more than it makes. A fleet without holders has no memory but a minimum.
//
// # Concurrency
//
// One RWMutex guards all. A change holds it for at most 256 blocks and a step that frees memory, a lookup for 4,096
// hashes or the prefix of one holder by the rules of several groups. Nothing that is copied under the lock grows with
// the blocks but the directory of the table, of 16 bytes for some 600 blocks. At the memory bound one change at a time
// makes room, and waits while a snapshot is copied. It lets others compute after each step and while it waits: see
// events.Blocks. There are no goroutines.
//
// A query keeps no position between its pieces. A holder number that was retired after Begin does not count in its
// answer, even if another holder has it by then.
package fleet
