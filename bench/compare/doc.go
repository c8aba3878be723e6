// Package compare asks hitline and what a user would otherwise take for the same
// lookups, on the same machine, in the same run. It runs on Linux only.
//
// # Who is asked
//
//   - hitline in its raw dialect, and by a ZeroMQ client
//   - floor: a blocking raw-socket server that reads as many bytes and answers 4, and looks nothing up
//   - go-net-map: a Go map behind a plain TCP server of this package, [ServeMap]
//   - go-zmq-map: a Go map behind a ZeroMQ socket of go-zeromq (bench/rivals/gomap)
//   - python-zmq: a Python set of the store's keys behind a ZeroMQ socket, with the work that an
//     engine's lookup thread does; python-zmq-bare: the same with a set of the bare hashes
//     (bench/rivals/python)
//   - Redis and Valkey: SMISMEMBER on one set of hashes, and pipelined EXISTS of a key a hash
//   - Mooncake: the master's batch existence call, for keys that are all absent
//
// Each is started here, on loopback, and stopped at the end. What is not on the
// machine is left out, and the report says why.
//
// # What is measured
//
// One client with one connection, which asks, waits and checks the answer. It
// writes bytes that were made ahead and reads by raw system calls; only Redis,
// Valkey and Mooncake are asked by the client libraries in Go that their users
// have, whose work counts, as does finding the hit in their answers. The garbage
// of these libraries is collected between the requests, so that it costs nobody
// anything. The client is pinned to one core and all servers to another; while
// one is asked, the others wait.
//
// For each number of hashes, chains of random hashes are stored with every rival,
// and requests rotate over them in one shuffled order, which every rival begins
// at another place. A round is made of slices that go to the rivals in turn, in an
// order that is another one each turn. Of each round the median of the round trips counts,
// and of the rounds the median. How many requests a rival gets depends on how long
// it takes for one. What is asked before the first round does not count; every
// answer is checked.
package compare
