// Package connector is the scheduler's side of a KV connector, for engines and simulators in
// Go that have a block store of their own. It says how many tokens of a request to load, which
// blocks these are, and which blocks to store after a step. It follows the scheduler and the
// worker of vLLM's MooncakeStore connector, of the releases 0.24.0 to 0.33.0.
//
// It moves no bytes and knows no store: it returns numbers of chunks and of hashes. Package
// coordinator has the rules of hits and masks, package lookup an index of blocks, and package
// lookup/client asks a server.
//
// # Glossary
//
//   - The words of package coordinator: hash block of H tokens, store group, chunk of B tokens,
//     alignment A, scheduler block size L, tail boundary, mask.
//   - rules: the [coordinator.Coordinator] of the engine's pool.
//   - computed: how many leading tokens of a request the engine has in its own cache.
//   - hash number: the position of a hash in the request's hashes, one for each hash block.
//   - run: consecutive chunks of one store group.
//
// # A request
//
//  1. [Scheduler.Match] in each scheduling step, until it is ready. It returns the hit.
//     [Scheduler.Discard] if the request goes before that.
//  2. [LoadRuns] of the hit: the blocks to load before the first step.
//  3. [StoreRuns] after each step: the blocks that have become whole and are worth storing.
//     From 0.29.0 on these are none of mamba groups, whose states [BlockAt] names.
//  4. If a hitline server answers the lookups, tell it what has been stored: StoreChain of
//     lookup/client, once for each run and rank, or StorePrompt for the whole step.
//
// # Blocks that are missing
//
// A store may lose a block between lookup and load. Besides, the reference's rules let a hit
// need blocks that were not looked up, and this package follows them:
//
//   - up to 0.26.0 where a hit of all tokens was lowered, in windows and mamba groups;
//   - up to 0.26.0 with mamba groups that are eagle groups, which can lengthen a hit;
//   - from 0.27.0 to 0.28.0 in fine-grained mode, the last block of a group: the store may have
//     it under a later hash, which only tail boundaries tell;
//   - in windows of one token, whose blocks are mostly not stored.
//
// If a load fails, the request must be computed as if there were no hit.
//
// # Layout
//
//	scheduler.go  Scheduler: what to ask, and how many tokens to load
//	run.go        Run: chunks with the numbers of their hashes
//	transfer.go   LoadRuns, StoreRuns, BlockAt
//
// # Ownership and concurrency
//
// Functions and values share nothing, and are safe for concurrent use. A Scheduler has no state
// and no goroutine beside those of its Poller, and is safe for concurrent use if that is.
package connector
