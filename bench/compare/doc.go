// Package compare asks hitline and what a user would otherwise take for the same lookups, on the
// same machine, in the same run. It runs on Linux only. No promise: it is internal to this module,
// and its API may change in any release.
//
// # Who is asked
//
//   - hitline in its raw dialect, and over ZeroMQ (hitline-zmtp)
//   - raw: a blocking server on a socket, [ServeRaw], that reads as many bytes and answers
//     4, and looks nothing up: the least that any server on a socket needs
//   - python-zmq: a Python set of the store's keys, served on a ZeroMQ socket, with the work that an
//     engine's lookup thread does; python-zmq-bare: the same with a set of the bare hashes
//     (bench/rivals/python)
//   - Redis: SMISMEMBER on one set of hashes, and pipelined EXISTS of a key a hash
//
// All are started here, on loopback, once for each number of hashes, and stopped. What
// is not on the machine is left out, and the report says why. The bytes of a request are made before,
// written and read by raw system calls, and the hit is taken from the bytes of the reply. This shows
// the server, not a client's library.
//
// # What is measured
//
// One client with one connection, which asks, waits and checks the answer. While one rival is
// asked, the others wait. The servers have half of the cores, and the client one of the others.
//
// For each number of hashes, chains of random hashes are stored with every rival,
// and requests rotate over them in one shuffled order, which every rival begins
// at another place. There are at least 20 chains, and with Options.Rotate they exceed
// caches. The hashes of a chain from the block on at which it misses are not stored
// anywhere. Each request that misses has another hash at that block. A seed determines the chains,
// their order, which of them miss where, and the absent hashes.
//
// A round is made of batches that go to the rivals in turn, in an order that is another one each turn.
// Percentiles and the maximum are those of all requests of all rounds. A ratio is the median of the
// rounds' ratios, each of the rounds' medians. What is asked before the first round does not count.
//
// With Options.Pipeline there are requests a second with many under way: in further rounds, of those
// that take more than one. As many requests as one read has answered are written with one call.
package compare
