// Package server serves a lookup.Service on TCP, TLS and unix sockets with gnet's event loops.
// It speaks the raw dialect and ZMTP; docs/protocol.md has the bytes. Programs are promised all
// that it exports.
//
// # What happens to a request
//
// An event loop reads the bytes of a connection, a conn, and feeds them to its netproto.Reader. The reader calls
// session.Begin when a request's hashes begin, Hashes for each piece of them, and End at the end of the
// request. Over the memory index a lookup, a store, an evict or a ping is answered inline: its hashes are
// looked up as they arrive. Replies are written at the end of the turn. Everything else is a job: its
// request is copied, and a worker calls one method of lookup.Service, over memory and over a store
// alike. CONTRIBUTING.md says where a new kind of request goes.
//
// A memory lookup, from socket to reply:
//
//  1. eventHandler.OnTraffic, conn.serve: bytes have arrived, a turn begins
//  2. conn.receive, feed: they are fed to the reader
//  3. netproto.Reader.Feed: frames are parsed
//  4. session.Begin, Hashes, End: may the peer do that?
//  5. inlineRequest: lookup.Query.Begin, Add, Finish
//  6. index.Index.Probe finds the keys, coordinator.Coordinator.Answer applies the rules
//  7. session.endInline: the reply is appended to the turn
//  8. conn.endTurn, flush: all replies of the turn are written
//
// A lookup over a store, or any other job, from step 4 on:
//
//  4. session.Begin, Hashes, End: job.addHashes copies the hashes that can change the answer
//  5. jobs.start, submit: the job is queued for the workers, its reply after earlier ones
//  6. workers.Pool.runJobs, job.Run: a worker calls the function of the table, operations[tag].run
//  7. lookup.Service.Lookup asks the store; jobs.complete wakes the event loop (eventLoop.push)
//  8. eventHandler.serveWaiting, conn.wake, jobs.applyCompleted, writeReply, conn.endTurn: the reply is written
//
// # Parts
//
// A conn is bytes in and out, timeouts, what it holds, and its life. Its session is what the bytes mean. They meet in
// protocol: the reader of a conn feeds its session, and the conn wakes it, asks what is pending, has it refuse what
// arrives, and closes it. The packages inside know neither:
//
//   - listen: addresses, and the connections that are accepted there
//   - tlspair: TLS connections, as unix sockets that event loops serve
//   - halfclosed: writing to a peer that has sent a FIN
//   - kept: bytes that are served later
//   - held: what bounds the bytes that connections hold, and who is closed when few are left
//   - workers: goroutines that run jobs, connections in turn
//   - description: the JSON of a pool request
//   - sockets: what the kernel tells of a socket
//
// # Order
//
// Requests of one connection take effect in the order in which they came. A job that changes anything waits
// for the jobs before it, and is a barrier: the bytes after it are kept, and read when it has ended. A lookup with
// so many hashes that its answer takes long is finished as a job, and is a barrier, too. Jobs that only read run
// together. While any job of a connection is pending nothing is answered inline there. Replies to equal
// envelopes are sent in order.
//
// # Glossary
//
//   - conn: one connection. life.go has its states.
//   - session: what the requests of a connection mean. Its conn knows it as a protocol.
//   - shared: what all sessions use.
//   - turn: what an event loop does for one connection before it serves the next.
//   - kept: bytes that have arrived and are read later: after a barrier, or because the turn was over.
//   - job: a request that a worker answers.
//   - barrier: the job after which nothing is read before it has ended.
//   - admission: what bounds what connections hold.
//   - apply: to apply what a job has found, as a pool or a credential.
//   - memory: what connections hold, and the keys of a store. limits.max_memory bounds it.
//   - memory account: what counts the keys, and has the bound (lookup.MemoryAccount).
//   - index: the memory index. A pool is over it, or over a store.
//   - pool: one engine's pool with its service; a session has one at a time, or none.
//   - settings: what may change of a listener while it listens: its rules and its TLS.
//   - authorization: the credential of a session and what it permits, as of some settings of its
//     listener.
//   - tenant: a peer whose credential is bound to pools (package access).
//   - pair: two connected unix sockets. An event loop serves one end, package tlspair copies between the
//     other and a TLS connection.
//
// # Invariants
//
//   - An inline lookup does not allocate in the steady state. It writes to no cache line that other
//     event loops write to or read.
//   - No event loop waits for a store, or computes for longer than a turn and one request.
//   - A turn ends between two requests once turnTime is over. What is left is kept, and served in turns
//     that the loop alternates with polling: see eventLoop.
//   - A client that keeps to api.Limits is never refused as busy for what it has in flight alone. One that exceeds
//     them twice over is closed.
//   - A refusal 00 means that nothing happened. What was done in part is told as 04.
//   - No step of a request is served by an authorization that is gone: see session.allow.
//   - A tenant learns nothing of other pools.
//   - A peer's mistake costs that peer a refusal or its connection, and no other peer anything.
//
// # Ownership and concurrency
//
// A conn and its session belong to their event loop. The fields of conn that closeOverdue, evictLate and Shutdown use are
// atomic. Bytes that gnet passes to OnTraffic are borrowed until conn.serve returns, and so are the hashes of
// session.Hashes. A job belongs to its event loop, but to a worker from workers.Pool.Submit to jobs.complete; its
// hashes are a pooled copy, released when it has run. Settings of listeners and limits are replaced as a whole, by
// atomic pointers. Shutdown waits for all goroutines of the server.
package server
