// Package coordinator decides how many leading tokens of a prompt an external KV cache
// pool can serve, and which blocks of each KV cache group these are. It reproduces the
// coordinator and the worker's lookup of vLLM's MooncakeStore connector, of the releases
// that Releases returns, bit for bit. Answers were recorded of three commits, too: those of
// 2026-06-20 are the default's, those of 2026-08-17 are of 0.27.0 to 0.28.0, and those of
// 2026-06-04 only show what changed. The package's input is presence: it does no I/O beyond a
// [KeyStore].
//
// Programs are promised [Pool], the rules of a [Coordinator], and the words that both speak.
//
// # How a hit is found
//
// Each kind has a finder. Full attention counts cached chunks from the left. A sliding
// window looks from the right for one run of chunks as long as the window. Mamba looks from
// the right for a single chunk. Chunked local attention assumes all chunks before the
// current attention chunk. Every finder's mask is null entries followed by real ones, so
// two numbers hold it.
//
// In FindHit the attention groups shorten the hit one after the other until nothing changes. The
// full-attention family comes first, since its result only needs cutting. Oddities of the
// reference are kept: see [Coordinator.FindHit] and [Scratch.Mask]. With one attention
// group one pass is enough, and the older releases align the hit to its own block.
//
// # Glossary
//
//   - hash block: H tokens, H being the pool's hash block size. Raw hash i stands for the
//     tokens [i*H, (i+1)*H) and all before them.
//   - group: a KV cache group, the layers of one spec (kind, block size B, window ...). B
//     is a multiple of H, and k = B/H is the group's stride.
//   - block, chunk: the same. Chunk c of a group is its tokens [c*B, (c+1)*B). It is keyed
//     by the last raw hash in it, KeyIndex(c, k).
//   - store group: a group that is kept in the store. Group numbers count store groups,
//     unless they say that they are positions in Pool.Groups.
//   - tail boundary: the token at which a group's last block of a hit is keyed.
//   - attention group: all groups of equal spec. A chunk of it is cached only if every
//     member has it, and its members share one mask.
//   - alignment A: the tokens that hits are multiples of. It is the scheduler block size L,
//     or H in fine-grained mode (from 0.27.0 on).
//   - mask: whether each chunk of a group is a real block or a null one.
//   - eagle group: a group of a draft model, or any group if the pool uses EAGLE and flags
//     none. It drops the last block that it finds: the drafter must see it computed.
//   - position: what one presence bit stands for. A chunk, or a raw hash in fine-grained
//     mode.
//   - key: the text that names one block on one rank in the store. A lookup checks the keys
//     of the positions in [Coordinator.Positions] and [Coordinator.KeyMask].
//
// # Layout
//
//	pool.go         configuration: defaults and checks
//	kind.go         the attention kinds
//	release.go      the releases of vLLM: their names
//	rules.go        the points in which releases differ, and their table
//	coordinator.go  Coordinator: the attention groups
//	presence.go     presence bits, and searches in them a word at a time
//	finders.go      the rule of each kind, for one attention group
//	find.go         FindHit: the common hit of all attention groups
//	mask.go         Mask, a list kept as a rule; periodic.go what repeats in it
//	masks.go        store, lookup and load masks
//	stored_chunks.go StoredChunks: what a store of a prompt keeps
//	tail.go         Hit, and the tail boundaries of its groups
//	ranks.go        the ranks that must hold a block
//	namespace.go    the store namespace of keys, and shards
//	keys.go         the text of keys
//	keystore.go     KeyStore, the external store of a lookup
//	lookup.go       Answer: a lookup by presence
//	store_lookup.go Lookup: a lookup over a store, in rounds
//	bitset.go       bits of positions
//	remembered.go   blocks that are present without being asked for
//	compare.go      what differs between two pools; later_fields.go which release has which field
//	hashes.go, group_rank.go, errors.go, warnings.go   what callers pass in and get back
//	explain.go      Explain: why a hit ends where it does; gap.go the blocks that end it
//
// # Invariants and cost
//
//   - A bit is read only below the current bound, and only if its chunk has a hash.
//   - Lengths in tokens are any int64, and no cost is proportional to them, nor to a start.
//   - A finder does at most one operation per word of the bitset and one per run of set bits. Bits begin
//     at the start of a lookup. Searches before it take constant time: whole periods of a mask are alike.
//   - FindHit allocates nothing once its Scratch has served a pool of as many groups.
//   - Configured sizes are bounded so that their products stay within 64 bits.
//
// # Ownership and concurrency
//
// A Coordinator is immutable and safe for concurrent use. A Presence belongs to its
// caller and is only read, during the call. A Scratch serves one call at a time. Masks are
// values.
//
// # Errors
//
// Every error of a Coordinator wraps one of the package's sentinels. Those that the
// reference raises wrap the sentinel of its exception class, so that failures can be
// compared too.
package coordinator
