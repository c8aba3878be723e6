// Package compare asks hitline and what a user would otherwise take for the same lookups, on the
// same machine, in the same run. It runs on Linux only. No promise: it is internal to this module,
// and its API may change in any release.
//
// # Who is asked
//
//   - hitline in its raw dialect, and over ZeroMQ (hitline-zmtp)
//   - raw: a blocking server on a socket, [ServeRaw], that reads as many bytes and answers
//     4, and looks nothing up: the least that any server on a socket needs
//   - python-zmq: a Python set of the store's keys behind a ZeroMQ socket, with the work that an
//     engine's lookup thread does; python-zmq-bare: the same with a set of the bare hashes
//     (bench/rivals/python)
//   - Redis and Valkey: SMISMEMBER on one set of hashes, and pipelined EXISTS of a key a hash
//
// All are started here, on loopback, once for each number of hashes, and stopped. What
// is not on the machine, or would not fit into its memory, is left out, and the report
// says why. The bytes of a request are made before, written and read by raw system calls, and
// the hit is taken from the bytes of the reply. This shows the server, not a client's library.
// A ratio is to hitline. For what speaks ZeroMQ there is a second one, to hitline-zmtp; and where
// raw is measured, all have one to it.
//
// # What is measured
//
// One client with one connection, which asks, waits and checks the answer. While one rival is
// asked, the others wait.
//
// The servers have half of the cores, and the client one of the others. With two cores the
// servers have one, which is hard on a server with several threads, such as pyzmq with its I/O
// thread.
//
// For each number of hashes, chains of random hashes are stored with every rival,
// and requests rotate over them in one shuffled order, which every rival begins
// at another place. There are at least 20 chains, and with Options.Rotate they exceed
// caches. The hashes of a chain from the block on at which it misses are not stored
// anywhere. Each request that misses has another hash at that block, also if all miss at
// the first one. A seed determines the chains, their order, which of them miss where, and
// the absent hashes: with the same seed the n-th request of the rotation has the same
// bytes for every rival and in every run. How many requests a rival gets depends on how
// long it takes for one.
//
// A round is made of batches that go to the rivals in turn, in an order that is
// another one each turn. Percentiles and the maximum are those of all requests of all
// rounds. A ratio is the median of the rounds' ratios, each of the rounds' medians. The
// spreads are the least and the largest of the rounds. What is asked before the first
// round does not count; every answer is checked.
//
// Beside latencies there are the CPU time of each server for a request, and requests a second
// with many under way (Options.Pipeline): in further rounds, of those that take more than one. As
// many requests as one read has answered are written with one call.
//
// Sockets are used by system calls that the Go scheduler is not told of, and clients allocate
// nothing, so that little of the client is in the figures: what it takes brings ratios nearer to 1.
package compare
