// Package server serves a lookup.Service on TCP and unix sockets by gnet's event loops,
// in the raw dialect and to ZeroMQ peers; docs/protocol.md has the bytes.
//
// # Glossary
//
//   - session: one connection.
//   - flight: one request over a remote backend, from its first byte to its reply.
//   - crew: the goroutines that wait for a remote backend.
//   - meter: what one event loop measures of the lookups that it answers.
//
// # One lookup
//
//	socket → Server.OnTraffic → session (netproto.Handler) → netproto.Reader
//	       → lookup.Query.Add → lookup.Query.Finish → reply
//
// and over a remote backend
//
//	session → flight.add: a copy of the hashes → session.takeOff → crew
//	       → lookup.Remote.Lookup → flights.land → the loop is woken
//	       → session.done: reply
//
// # Invariants
//
//   - Nothing on the way of a lookup over the index allocates in the steady state.
//   - No event loop waits for a remote backend. One that is slow or dead costs its
//     callers a hit of 0 by the deadline, and others nothing.
//   - Requests of one connection take effect in order, and replies to equal
//     envelopes come in order. Over a backend, a change that timed out may still take
//     effect later; others wait until its call has returned.
//   - A peer's mistake costs that peer a 00 reply or its connection, and nobody
//     else anything.
//
// # Ownership
//
// gnet lends each callback a slice of its loop's read buffer; the session consumes
// all of it before it returns. Replies are built in a pooled buffer that is given
// back when they are written. A flight holds a pooled copy of its hashes until its lookup
// or change has returned; an abandoned call of the backend has keys of its own. A flight belongs to its session, but from crew.submit to
// flights.land to a worker.
//
// # Concurrency
//
// A session belongs to its event loop; what the sweeper of timeouts reads of it is
// atomic, and workers only land. The server's workers are joined when it has stopped.
package server
