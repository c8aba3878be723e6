// Package client is the client of a hitline server. It speaks the raw dialect of
// docs/protocol.md over TCP, TLS and unix sockets. It links neither the server nor the index,
// and starts no goroutine before a client is made.
//
// # Clients
//
//   - [Client] waits for each answer. Its calls share a pool of connections, or one
//     connection with [WithPipeline].
//   - [AsyncClient] does not wait. A scheduler polls it for the answers.
//
// # Glossary
//
//   - exchange: one request and its reply, or the requests of one batch and their replies.
//   - call: one request that shares a pipe with others.
//   - pipe: a connection with many requests in flight, matched to their replies by ids.
//   - blob: the hashes or keys of a request, joined. head: the rest of it, encoded.
//
// # Layout
//
//	options.go        what can be configured, and the defaults
//	errors.go         sentinels, and which error gets which
//	client.go         Client: one method for each request
//	batch.go          many lookups in one write
//	masks.go          a Client's plans and requests for masks; store_prompt.go stores of prompts
//	instance.go       which run of a server a connection is to
//	async.go          AsyncClient
//	request.go        a request, encoded; reply.go a reply, decoded
//	token.go          tokens; tls.go TLS
//	introduce.go      what is sent first on a connection
//	pool.go           connections of one exchange at a time; conn.go one of them
//	conn_check_*.go   whether an idle connection is still open
//	pipe.go           a pipe and its owner; pipe_write.go, pipe_read.go its two directions
//	calls.go          the calls of a pipe: queued, awaited, abandoned
//	slots.go          the requests in flight; envelope.go their ids
//	dialer.go         connections are made, with a backoff
//
// # Invariants
//
//   - No request is sent twice.
//   - A call returns within milliseconds of its deadline or of its context's end.
//   - After a call returns, nothing reads its arguments.
//   - A connection that failed, or whose exchange was abandoned, is never reused.
//   - Lookup, and Batch over many lookups, allocate nothing but tail boundaries in the
//     steady state.
//
// # TLS
//
// All this holds over TLS too. What differs:
//
//   - Requests are written in records of 16 KiB, which copies them.
//   - Close ends the connection below TLS and sends no close_notify, which could wait for the
//     server. Nothing is lost by that: the length of each message is in it.
//   - A connection on which the server sends anything while it is idle, as a session ticket, is
//     replaced by a new one before the next call.
//   - The server refuses a client certificate after the handshake: see [WithTLS].
//
// # Concurrency and ownership
//
// Client and AsyncClient are safe for concurrent use. A Client without WithPipeline reads
// and writes on its caller's goroutine. A pipe has two goroutines: one owns the connection
// and writes, the other reads. Arguments are borrowed until the call returns; AsyncClient
// copies the hashes. Results belong to the caller.
package client
