// Package server serves a lookup.Service on TCP and unix sockets by gnet's event loops,
// in the raw dialect and to ZeroMQ peers; docs/protocol.md has the bytes.
//
// # Glossary
//
//   - session: one connection.
//   - turn: one run of an event loop for one connection.
//   - remote request: one request over a backend, from its first byte to its reply.
//
// # One lookup
//
//	socket → Server.OnTraffic → session.receive → netproto.Reader.Feed
//	       → memoryHandler.begin, add, end: lookup.Query.Begin, Add, Finish
//	       → session.flush
//
// and over a backend
//
//	session.receive → remoteHandler.begin, add, end: a copy of the hashes
//	       → remoteHandler.dispatch → workerPool.submit
//	worker → remoteRequest.run → lookup.Remote.Lookup → remoteHandler.complete
//	       → the event loop is woken
//	session.resume → remoteHandler.finish → session.flush
//
// # Invariants
//
//   - No lookup over the index allocates in the steady state.
//   - No event loop waits for a backend. One that is slow or dead costs its callers a
//     hit of 0 by the deadline, and others nothing.
//   - Requests of one connection take effect in order, and replies to equal envelopes
//     come in order. Over a backend, a change that timed out may still take effect
//     later; others wait until its call has returned.
//   - A peer's mistake costs that peer a 00 reply or its connection, and nobody else
//     anything.
//
// # Ownership
//
//   - Borrowed from the event loop: the bytes that gnet hands to OnTraffic, and the hashes
//     of requestHandler.add, which lie in them, until the call returns.
//   - Pooled (bytebufferpool): the replies of a turn, until session.endTurn, and a remote
//     request's copy of its hashes, until it completes.
//   - Copied: the hashes of a remote request, its envelope and the echo of a ping over a
//     backend; what a message split over turns leaves (netproto.Reader.Copied).
//
// A remote request belongs to its connection's event loop, and to a worker from
// workerPool.submit to remoteHandler.complete.
//
// # Concurrency
//
// A session belongs to its event loop. What the sweeper of timeouts reads of it is atomic.
// Workers call only remoteHandler.complete. Shutdown waits for all goroutines.
package server
