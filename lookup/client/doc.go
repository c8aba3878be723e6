// Package client is the client of a hitline server. It speaks the raw dialect of
// docs/protocol.md over TCP, TLS and unix sockets. It links neither the server nor the index,
// and starts no goroutine before a client is made. Programs are promised all of it.
//
// # What happens to a call
//
// A method of [Client] makes a call of its arguments and queues it. The transport's writer takes
// calls from the queue, in order, while the server's limits allow it. It gives each a slot, whose
// number is the envelope, and writes many calls at once. The transport's reader finds the call of
// each reply by its envelope, checks the reply, and wakes the caller. A caller whose context ends
// abandons its call: its slot stays until the reply comes, which is dropped.
//
// The writer dials when there is a call and no connection. It writes the setup first: the token, the
// description of the pool, and a ping, which tells the limits. Calls are written once the setup is
// answered. outage.go says what happens to calls when the connection breaks, and while there is none.
//
// [Client.Batch] queues many calls and waits for all. [AsyncClient] queues calls and lets a
// scheduler poll for their answers.
//
// # Glossary
//
//   - blob: the hashes or keys of a request, joined. head: the rest of it, encoded.
//   - call: a request, how far it has come, and its answer.
//   - in flight: written, and not answered.
//   - setup: the requests before the first call of a connection.
//
// # Layout
//
//	client.go         Client: one method for each request
//	batch.go          many lookups; async.go AsyncClient
//	masks.go          plans and masks; store_prompt.go stores of prompts; pool.go descriptions of pools
//	request.go        a request, encoded; reply.go a reply, checked
//	errors.go         sentinels, and which error gets which
//	options.go        what can be configured; token.go tokens; tls.go TLS
//	transport.go      the connection and its writer; read.go its reader; setup.go its first requests
//	calls.go          calls: queued, awaited, abandoned, sent again
//	flight.go         the requests in flight, and the limits; envelope.go their ids
//	dialer.go         connections are made; outage.go when, and which calls wait for them
//
// # Invariants
//
//   - A request is sent once, unless the server has refused it as busy, or it changes nothing and its
//     connection was lost: then once more.
//   - A call returns within milliseconds of its context's end or of its deadline.
//   - After a call returns, nothing reads its arguments.
//   - No more requests and bytes are in flight than the server has told.
//   - Lookup allocates nothing but tail boundaries in the steady state.
//
// # TLS
//
// All this holds over TLS too. What differs: large blobs are copied before they are written, as an
// interrupted TLS connection cannot go on. Close ends the connection below TLS and sends no
// close_notify, which could wait for the server. Nothing is lost by that: the length of each message
// is in it.
//
// # Concurrency and ownership
//
// Client and AsyncClient are safe for concurrent use. Arguments are borrowed until the call
// returns; AsyncClient copies the hashes. Results belong to the caller.
package client
