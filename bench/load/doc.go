// Package load puts load on a hitline server over its own light connections, measures the answers,
// and checks every one of them. It is there on Linux only. No promise: it is internal to this module,
// and its API may change in any release.
//
// # What is checked
//
// A pool has one full-attention group, so a lookup must hit the leading hashes that were stored. A
// random seed keeps runs apart, so a server need not be empty; it must hold all that a run stores.
// Requests of one connection are answered in order. An answer that cannot be read, was not asked for,
// or comes too late ends the run. At its end every connection sends a ping: whatever comes before its
// echo was not asked for either.
//
// A latency counts if its request was sent, or fell due, while measuring, whenever the
// answer came: a stall across the end counts whole. Lookups without an answer
// where a run is cut short count with what they had waited. A request counts if it was
// answered while measuring. Misses ask for absent hashes from as many as are stored, so
// that these are no warmer in a server's caches.
//
// # How it is measured
//
// A worker is a thread that serves some connections. It blocks on the only one if
// nothing can be sent while an answer is awaited, else it waits by epoll. It makes system
// calls of its own (package wire), because the runtime's poller costs several microseconds
// a round trip, and allocates nothing. Requests are lists of pointers into the chains, so
// nothing is copied before the kernel does. Each worker has a histogram of
// its own; they are merged after a step.
//
// Where both sides run moves the figures severalfold, so with a placement the process is kept to the
// client's cores and has at most as many workers. A connection belongs to one worker, and so does its
// source of requests. Chains and options are shared and only read.
//
// # Glossary
//
//   - chain: the hashes of one prompt, random but for the run's seed. All chains are stored before
//     anything is measured.
//   - hit: a lookup of a whole chain. miss: a lookup of a chain up to some block,
//     and of hashes that nobody stored from there on.
//   - step: one stretch of measuring; several rates have one each.
//   - closed loop: a connection sends its next request when an answer has come. It asks
//     nothing while it waits, so a pause of the server is one latency among thousands.
//   - open loop: requests fall due at a fixed rate, whether answers come or not. Latency counts
//     from when a request fell due, not from when it was sent, so a server that stalls is charged
//     for all who would have waited. Requests that were never sent count with what they had waited
//     at the end; figures that this makes lower bounds say so.
package load
