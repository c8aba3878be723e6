// Package lookup is the service of hitline, in process: how many leading tokens of a
// prompt, given its block hashes, are in the pool and loadable? It answers over the
// memory index or over a remote backend. lookup/server serves it over sockets,
// lookup/client asks such a server, lookup/metrics shows it to Prometheus. This package
// opens no sockets and starts no goroutines but those of calls of a backend.
//
// # Glossary
//
//   - lookup: the question above. The answer is the hit, in tokens.
//   - group rank: a group on one rank; what a store or an evict speaks of.
//   - query: one lookup under way over the memory index. Hashes go in as they arrive,
//     bits come out.
//   - group set: the groups whose chunks are asked at the same positions, so that one
//     walk through the index serves all of them.
//   - anchor: one of the few hashes of a lookup by anchors, with its block's number.
//
// # One lookup
//
//	Service.Lookup, or a server with hashes as they arrive
//	       → Query.Add: index.Probe → bits of each group
//	       → Query.Finish: coordinator.Answer
//
// and over a remote backend
//
//	Service.Lookup, or a server's worker
//	       → Remote.Lookup: coordinator.Gallop or Lookup → Backend.Exists
//
// # Lookups by anchors
//
// Long prompts may be asked for by a few of their hashes, and the same query answers
// (anchors.go): what the index knows of the chain in front of an anchor goes in as
// bits, then the hashes that follow, if there are any. If that is not all that the
// rules look at, the answer tells which hashes are wanted. Why the hit is exact is in
// docs/architecture.md.
//
// # Invariants
//
//   - Nothing on the way of a lookup over the index allocates in the steady state, and
//     nothing is proportional to the number of tokens, only to min(hashes, tokens /
//     hash block size). Of a lookup by anchors those are the hashes that it says its
//     prompt has.
//   - A bit says that the block was there at some moment between the request's
//     first byte and its reply; a reset in between clears the bits collected so
//     far.
//   - A backend that is slow or dead costs a lookup a hit of 0, at most some milliseconds
//     past its deadline.
//
// # Ownership
//
// Hashes and keys passed in are only borrowed. A query holds pooled bitsets from Begin
// to Release. The keys of a call of a backend are held until it returns, also when
// nobody waits for it any longer.
//
// # Concurrency
//
// Service and Remote are safe for concurrent use. A Query and a Change belong to one
// goroutine at a time.
package lookup
