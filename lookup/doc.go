// Package lookup joins the parts of hitline into the service: Service answers
// lookups in process, over the memory index or over a remote backend, Server
// serves it on TCP by event loops, Client asks such a server.
//
// # Glossary
//
//   - lookup: how many leading tokens of a prompt, given its block hashes, are in
//     the pool and loadable? The answer is the hit, in tokens.
//   - place: a group on one rank; what a store or an evict speaks of.
//   - query: one lookup under way. Hashes go in as they arrive, bits come out.
//   - lane: the groups whose chunks are asked at the same positions, so that one
//     walk through the index serves all of them.
//   - flight: one request over a remote backend, from its first byte to its reply.
//   - crew: the goroutines that wait for a remote backend.
//   - anchor: one of the few hashes of a lookup by anchors, with its block's number.
//   - meter: what one event loop measures of the lookups that it answers.
//
// # One lookup
//
//	socket → Server.OnTraffic → session (netproto.Handler) → netproto.Reader
//	       → query.add: index.Probe → bits of each group
//	       → query.finish: coordinator.Answer → reply
//
// and over a remote backend
//
//	session → flight.add: a copy of the hashes → session.takeOff → crew
//	       → coordinator.Ask: Backend.Exists → flights.land → the loop is woken
//	       → session.done: reply
//
// # Lookups by anchors
//
// A Client asks for long prompts by a few of their hashes (anchors_client.go), and
// the same query answers (anchors.go): what the index knows of the chain in front of
// an anchor goes in as bits, then the hashes that follow, if there are any. If that
// is not all that the rules look at, the reply tells which hashes are wanted. Why the
// hit is exact is in docs/architecture.md.
//
// # Invariants
//
//   - Nothing on the way of a lookup allocates in the steady state, and nothing is
//     proportional to num_tokens, only to min(hashes, num_tokens / hash block size).
//     Of a lookup by anchors those are the hashes that it says its prompt has.
//   - A bit says that the block was there at some moment between the request's
//     first byte and its reply; a reset in between clears the bits collected so
//     far.
//   - No event loop waits for a remote backend. One that is slow or dead costs its
//     callers a hit of 0 by the deadline, and others nothing.
//   - Requests of one connection take effect in order, and replies to equal
//     envelopes come in order.
//   - A peer's mistake costs that peer a 00 reply or its connection, and nobody
//     else anything.
//
// # Ownership
//
// gnet lends each callback a slice of its loop's read buffer; the session consumes
// all of it before it returns. Replies are built in a pooled buffer that is given
// back when they are written. A query holds pooled bitsets from the first byte of
// its blob to its reply. A flight holds a pooled copy of its hashes until the
// backend has answered: it belongs to its session, but from crew.submit to
// flights.land to a worker.
//
// # Concurrency
//
// Service is safe for concurrent use. A session belongs to its event loop; what
// the sweeper of timeouts reads of it is atomic, and workers only land. The
// server's workers are joined when it has stopped. Client and AsyncClient
// are safe for concurrent use. A Client's call does its own input and output on a
// connection that is its alone (pool.go, conn.go); with WithPipeline, and in an
// AsyncClient, one goroutine owns the connection, and one that it joins reads from
// it (pipe.go).
package lookup
