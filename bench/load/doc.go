// Package load puts load on a hitline server over its own light connections, measures the answers,
// and checks every one of them. It runs on Linux only. No promise: it is internal to this module,
// and its API may change in any release.
//
// # Glossary
//
//   - chain: the hashes of one prompt, random but for the run's salt, ready to be
//     sent. All chains are stored before anything is measured.
//   - hit: a lookup of a whole chain. miss: a lookup of a chain up to some block,
//     and of hashes that nobody stored from there on.
//   - step: one stretch of measuring; several rates have one each.
//   - closed loop: a connection sends its next request when an answer has come. It asks
//     nothing while it waits, so a pause of the server is one latency among thousands.
//   - open loop: requests fall due at a fixed rate, whether answers come or not. Latency counts
//     from when a request fell due, not from when it was sent, so a server that stalls is charged
//     for all who would have waited. Requests that were never sent count with what they had waited
//     at the end; figures that this makes lower bounds say so.
//   - own chain: one of the few that a connection stores and evicts while it is
//     measured. No other connection asks for it.
//
// # What is checked
//
// What a lookup must hit is computed beforehand from what was stored, by package
// coordinator in this process, for the pool that the server tells. A salt keeps runs apart, so a server need not be
// empty. Requests of one connection take effect in order and, having equal
// envelopes, are answered in order; so the expected answer is known when a request
// is sent, also with stores and evicts. An answer that cannot be read, was not
// asked for, or comes too late ends the run. At its end every connection sends a
// ping: whatever comes before its echo was not asked for either.
//
// A latency counts if its request was sent, or fell due, while measuring, whenever the
// answer came: a stall across the end counts whole. Lookups without an answer
// where a run is cut short count with what they had waited. A request counts if it was
// answered while measuring. Misses ask for absent hashes from as many as are stored, so
// that these are no warmer in a server's caches.
//
// The server must hold all that a run stores: one that evicts is reported as wrong.
//
// # How it is measured
//
// A worker is a thread that serves some connections. It blocks on the only one if
// nothing can be sent while an answer is awaited, else it waits by epoll. It makes system
// calls of its own (package wire), because the runtime's poller costs several microseconds
// a round trip, and allocates nothing. Requests are lists of pointers into the chains, so
// nothing is copied before the kernel does. Workers record in histograms of a window each,
// which one goroutine merges.
//
// Where both sides run moves the figures severalfold. With ClientCores the process is
// kept to those cores and has at most as many workers; the report says where both sides
// ran. One seed makes the same requests on every connection.
//
// # Ownership
//
// A connection belongs to one worker, and so do its source of requests and its own
// chains. Chains, shapes and options are shared and only read.
package load
