// Package bench generates load for a hitline server and measures and checks the
// answers. It opens no sockets: it drives a [Target], and the commands of
// cmd/hitbench bring the connection.
//
// # Replaying a trace
//
// [Replay] takes the requests of a recorded trace in file order. For each it
// looks up all blocks, compares the answer with a model of its own, and then
// stores the blocks. The answer of an unbounded index is known exactly; that of
// a bounded one is known from above.
//
// # Glossary
//
//   - trace: JSON lines in the format of the published Mooncake traces. Of each
//     line only the list hash_ids is read and, for a replay at a speed, timestamp,
//     a number of milliseconds that does not fall from line to line.
//   - id: one number of hash_ids, the name of a block of [BlockTokens] tokens in
//     its context. All ids count as full blocks, the last of a request too.
//   - hash block: what one hash covers; [BlockTokens] or an even part of it.
//   - connection: one [Target]. Each replays the whole trace under a salt of its
//     own, so the connections share no hash and the model holds for each alone;
//     or they split the trace, see below.
//   - due: when a request is to be sent, in a replay at a speed. What is sent late
//     because an answer before it was late counts as latency from when it was due.
//
// # The chain
//
// An id becomes workload.BlockTokens / HashBlockTokens hashes of 32 bytes. Each folds in
// the one before it, so that a hash names a whole prefix:
//
//	hash = SHA-256( previous hash | id u64 | sub-block u32 )   integers big-endian
//	                32 bytes        8 bytes  4 bytes
//
// The hash before the first is the connection's root: 32 zero bytes for
// connection 0, SHA-256("hitline replay salt " + decimal c) for connection c > 0.
// Connections that split a trace all have the root of connection 0.
//
// # The model
//
// All sub-blocks of an id are stored and looked up together, so the model is a
// trie over ids and not over hashes: one map entry of some 40 bytes for each
// distinct prefix. The expected answer is the depth to which a request's ids are
// known, in tokens.
//
// # Splitting a trace
//
// With Split the connections make the requests of one replay together. All
// requests that have the same first id after the opening, the ids that every
// request of the trace begins with (such as one system prompt), go to one
// connection, in order. So two connections share the opening and nothing else, and
// once it is stored the model of each connection is exact. Until then, mostly for
// one request, there is one request at a time. The hits add up to those of a replay
// over one connection.
//
// The trace is read twice, once to find the opening. A new first id goes to the
// connection that was given the fewest ids.
//
// # Concurrency
//
// A replay runs one goroutine for each connection, and one more that reads the
// trace if it is split, with up to 64 requests waiting for each connection; all of
// them have ended when Replay returns.
package replay
