// Package lookup joins the parts of hitline into the service: Service answers
// lookups over the memory index in process, Server serves it on TCP by event
// loops, Client asks such a server.
//
// # Glossary
//
//   - lookup: how many leading tokens of a prompt, given its block hashes, are in
//     the pool and loadable? The answer is the hit, in tokens.
//   - place: a group on one rank; what a store or an evict speaks of.
//   - query: one lookup under way. Hashes go in as they arrive, bits come out.
//   - lane: the groups whose chunks are asked at the same positions, so that one
//     walk through the index serves all of them.
//
// # One lookup
//
//	socket → Server.OnTraffic → session (netproto.Handler) → netproto.Reader
//	       → query.add: index.Probe → bits of each group
//	       → query.finish: coordinator.Answer → reply
//
// # Invariants
//
//   - Nothing on the way of a lookup allocates in the steady state, and nothing is
//     proportional to num_tokens, only to min(hashes, num_tokens / hash block size).
//   - A bit says that the block was there at some moment between the request's
//     first byte and its reply; a reset in between clears the bits collected so
//     far.
//   - A peer's mistake costs that peer a 00 reply or its connection, and nobody
//     else anything.
//
// # Ownership
//
// gnet lends each callback a slice of its loop's read buffer; the session consumes
// all of it before it returns. Replies are built in a pooled buffer that is given
// back when they are written. A query holds pooled bitsets from the first byte of
// its blob to its reply.
//
// # Concurrency
//
// Service is safe for concurrent use. A session belongs to its event loop; what
// the sweeper of timeouts reads of it is atomic. Client is safe for concurrent
// use and serves one request at a time.
package lookup
