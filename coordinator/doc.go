// Package coordinator decides how many leading tokens of a prompt an external
// KV cache pool can serve, and which blocks of each layer group that means. It
// reproduces the coordinator and the worker's lookup of the vLLM MooncakeStore
// connector at three dated revisions, bit for bit, over presence that somebody
// else has gathered: it does no input or output of its own.
//
// # Words
//
//   - Raw hash i stands for the tokens [i*H, (i+1)*H) and all before them; H is
//     the pool's hash block size.
//   - A group is a set of layers with one spec (kind, block size B, window ...).
//     B is a multiple of H, and k = B/H is the group's stride.
//   - Chunk c of a group is its tokens [c*B, (c+1)*B). It is keyed by the last
//     raw hash in it, c*k + k - 1. The words block and chunk mean the same here.
//   - An attention group is all groups of equal spec. A chunk of it is cached
//     only if every member has it, and its members share one mask.
//   - The alignment A is what hits are rounded to: the scheduler block size L,
//     or H in fine-grained mode (revision 2026-08-17 only).
//   - A mask says of each chunk whether it is a real block or a null one.
//   - An eagle group belongs to a draft model. It looks at its last block and
//     gives it up, because the drafter must see that block computed.
//   - A position is what one presence bit stands for: a chunk, or a raw hash in
//     fine-grained mode.
//
// # Layout
//
//	pool.go         configuration: defaults and refusals
//	kind.go         the attention kinds
//	revision.go     the revisions, and the points in which finding differs
//	coordinator.go  Coordinator: groups merged and sorted once
//	presence.go     presence bits, and searching them a word at a time
//	finders.go      the rule of each kind, for one attention group
//	find.go         FindHit: the common hit of all attention groups
//	mask.go         Mask, a list kept as a rule
//	masks.go        store, lookup and load masks
//	ranks.go        the ranks that must hold a block
//	keys.go         the text of a key
//	worker.go       a whole lookup: what to ask, and the answer
//	answers.go      a store's answers as presence bits
//	repeats.go      equal hashes in one request
//	gallop.go       a whole lookup in rounds, which asks only what matters
//
// # How a hit is found
//
// Each kind has a finder. Full attention counts cached chunks from the left.
// A sliding window needs one run of chunks as long as the window, and looks for
// it from the right; mamba needs a single chunk, from the right. Chunked local
// attention takes all before the current attention chunk for granted. Every
// finder's mask is null entries followed by real ones, so two numbers hold it.
//
// FindHit lets the attention groups shorten the hit in turn until nothing
// changes, the full attention family first because its answer only ever needs
// cutting. Oddities of the reference are kept: see [Coordinator.FindHit] and
// [Scratch.Mask]. With one attention group there is nothing to agree on, and
// the older revisions align the hit to its own block.
//
// # Invariants and cost
//
// A bit is read only below the current bound, and only if its chunk has a hash.
// Lengths in tokens are any int64; nothing is proportional to them. A finder
// costs at most one step per word of the bitset plus one per run of set bits,
// and FindHit allocates nothing once its Scratch is warm. Configured sizes are
// capped so that their products stay within 64 bits.
//
// # Ownership and concurrency
//
// A Coordinator is immutable and shared freely. A Presence belongs to its
// caller and is only read, during the call. A Scratch serves one goroutine at a
// time. Masks are values.
//
// # Errors
//
// Every error wraps one of the package's sentinels. Those that the reference
// raises wrap the sentinel of its exception class, so that agreement can be
// checked for failures too.
package coordinator
