// Package server serves a lookup.Service on TCP, TLS and unix sockets with gnet's event loops.
// It speaks the raw dialect and ZMTP; docs/protocol.md has the bytes.
//
// # Glossary
//
//   - session: one connection.
//   - work: the cost of serving a peer, counted in units of about one hash compared.
//   - turn: what an event loop does for one connection until its bytes are served or its share
//     of work is spent: all reads of one call of OnTraffic, or a part of a backlog.
//   - backlog: the bytes of a session that wait for its next turns. While it has some, reading
//     from its socket is paused.
//   - turn queue: the sessions of an event loop that have a backlog, in order.
//   - memory account: counts what peers make the server hold (lookup.MemoryAccount).
//   - pool: one engine's pool with its service; a session has one at a time, or none.
//   - settings: what may change of a listener while it listens: its rules and its TLS.
//   - authorization: the credential of a session and what it permits, as of some settings of its
//     listener.
//   - anonymous: without a credential.
//   - tenant: a peer whose credential is bound to pools (package access).
//   - handler: serves the requests of one session, over the memory index or a backend.
//   - remote request: one request over a backend, from its first byte to its reply.
//   - worker: a goroutine that calls the backend.
//   - pair: two connected unix sockets. An event loop serves one end, goroutines copy between the
//     other and a TLS connection.
//
// # From socket to reply
//
// Over the memory index a lookup is answered in the turn that serves its last byte:
//
//  1. acceptor.accept, admit, enroll: a connection is accepted and handed to an event loop
//  2. eventHandler.OnOpen: it gets a session and a handler
//  3. eventHandler.OnTraffic, Server.serveTraffic: bytes have arrived
//  4. session.receive: a turn begins
//  5. netproto.Reader.Feed: the bytes are parsed
//  6. session.Begin, Hashes, End: the netproto.Handler that Feed calls. Each calls session.allow
//  7. memoryHandler.begin, addHashes, end
//  8. lookup.Query.Begin, Add, FinishSome: the hashes are looked up as they arrive
//  9. netproto.AppendTailHit: the reply is appended to session.out
//  10. session.writeReplies, flush: the replies to all these bytes are written at once
//
// With TLS, acceptor.admitTLS and startTLS stand between steps 1 and 2: the handshake, and a pair
// whose one end is handed to the loop. Then tlsConn.copyIn comes before each step 3, and copyOut
// after each step 10.
//
// If the work of the turn is spent in steps 5 to 9, Feed returns:
//
//  1. session.beginBacklog, addBacklog: the bytes that are left are kept, reading is paused
//  2. turnQueue.push, wakeLoop: the session waits behind the others
//  3. OnTraffic of the turn queue, Server.handleTurn, session.takeTurn: steps 5 to 10, for one
//     turn; then the session goes to the end of the queue, or its reading is resumed
//
// From step 7 on, over a backend:
//
//  7. remoteHandler.begin, addHashes, end: the hashes are copied
//  8. remoteHandler.enqueueReply, serve, enqueue, dispatch, start, workerPool.submit: the request is queued
//  9. workerPool.runRequests, remoteRequest.run, lookup.Remote.Lookup: a worker calls the backend
//  10. remoteHandler.complete: the worker wakes the event loop
//  11. OnTraffic, serveTraffic, session.handleWake, remoteHandler.handleWake: replies without bytes
//  12. remoteHandler.finish, writeReply, session.writeReplies, flush
//
// # Layout
//
//	server.go          Config, Server and its counters
//	lifecycle.go       Start, Shutdown; drain.go the wait for open requests
//	listen*.go         addresses are bound; acceptor.go connections are accepted
//	tls_acceptor.go    handshakes; tls_conn.go copies between a tls.Conn and a pair;
//	                   tls_transport.go what is below the tls.Conn; socketpair.go makes pairs
//	listener.go        the settings of a listener; authorize.go what they let a peer do
//	authenticate.go    tokens of auth requests; zmtp_plain.go those of ZMTP peers
//	event_handler.go   gnet's events; continue_read.go further reads of a request
//	session.go         one connection; timeouts.go its timeouts; held.go the memory it holds
//	turn.go            turns, their work, and the backlog; turn_queue.go sessions that wait
//	pause_*.go         pausing the reading from a socket, without gnet
//	pools.go           the pools that are served; pool_request.go how one is described;
//	                   served_pool.go for programs that embed the server
//	handler.go         what the two handlers share
//	memory_handler.go  requests over the memory index
//	remote_handler.go  requests over a backend; remote_request.go one of them
//	remote_replies.go  their replies, in order
//	masks.go           plans and requests for masks, over both
//	store_prompt.go    stores of prompts, over both; reset_rank.go resets of ranks
//	instance.go        the instance that pings and stats name
//	worker_pool.go     the workers
//	limits.go          what can be limited; nofile.go the limit of open files; errors.go
//	close_reason.go    why connections end; peerlog.go logs it; refusals.go keeps the last ones
//	loop_metrics.go    what each event loop counts: lookup durations and sizes, turns; stat.go
//	connections.go     what is told of each connection; admin.go who may see it
//	ready.go           readiness
//
// # Invariants
//
//   - A lookup over the index does not allocate in the steady state. It writes to no cache line
//     that other event loops write to or read: each loop has its own counters, and charges
//     memory in steps (session.charge).
//   - A turn exceeds its share by at most one piece of work that is not cut (docs/limits.md).
//     Between two turns of a turn queue the loop serves what its other connections have sent.
//   - What a session holds is charged to the memory account after each call of feed, rounded up
//     for its event loop, and freed when the connection is closed.
//   - No event loop waits for a backend. If a backend is slow or down, its lookups return
//     0 by their deadline, and other requests are not delayed.
//   - Requests of one connection take effect in order. Replies to equal envelopes are sent
//     in order. Over a backend, a change that timed out may still take effect; later
//     requests wait until its call has returned.
//   - No step of a request is served by an authorization that is gone: before it, session.allow
//     compares the settings of the session with those of its listener, and the time with its end.
//     A request over a backend is checked again if it was pending.
//   - A tenant learns nothing of other pools: what it asks is answered from its own alone.
//   - A peer's mistake costs that peer a 00 reply or its connection, and no other peer
//     anything.
//   - A TLS connection is counted from its accept until its replies are sent. Its goroutines
//     hold no buffers while they wait, but for a record of which the socket has taken a part.
//
// # Ownership
//
//   - Borrowed from the event loop: the bytes that gnet passes to OnTraffic, until the end
//     of serveTraffic. The hashes of requestHandler.addHashes lie in them, and are valid until
//     the call returns.
//   - Pooled: the buffer of continueRead, in which hashes lie in the same way; session.out,
//     until writeReplies; a remote request's hashes, until release; a lookup.Query, until
//     releaseRequest.
//   - A backlog is a copy that belongs to its session, from beginBacklog to dropBacklog. Hashes
//     lie in it in the same way. Up to readBuffer bytes of it are in a pooled array. If the
//     connection is closed while a turn serves it, takeTurn drops it, otherwise OnClose.
//   - Copied by netproto.Reader: envelopes, the echo of a ping, and a hash that is split between
//     two reads (Reader.Copied). They are valid until end returns.
//   - Copied by a remote request: its hashes, its envelope and its echo.
//   - Copied by gnet: the part of a reply that the socket does not take at once.
//
// A remote request belongs to its connection's event loop, but to a worker from
// workerPool.submit to remoteHandler.complete.
//
// # Concurrency
//
// A session, its handler and its turn queue belong to their event loop. The fields that
// closeOverdue, closeLargest, drain and Connections use are atomic. Settings of listeners and limits are replaced
// as a whole, by atomic pointers. Of a handler, workers use only connCtx,
// session, for its server, and complete. Shutdown waits for all goroutines of the server.
package server
