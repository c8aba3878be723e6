// Package vllm compares the lookup of a vLLM release with hitline's, over the same keys of one
// Mooncake master. No promise: it is internal to this module, and its API may change in any
// release.
//
// # Who is asked
//
//   - vllm: the release's own lookup client and lookup server, unmodified modules of its
//     wheel, each in a process of its own as in an engine; the server has a store client of
//     the mooncake package
//   - hitline: hitline serve over the mooncake backend, asked by the Python client that the
//     plug-in puts in the place of vLLM's
//
// An engine is a Python process that has both clients. It times one call of lookup, from the
// list of hashes to the hit. Both servers listen on unix sockets. Nothing is pinned.
//
// # What is measured
//
// A shape is a model's groups, a tensor-parallel size, a number of hashes, and a number of
// engines that ask at the same time. For each shape and for each [Presence] the keys that
// the release asks for are stored, of some chains, and both are asked for these chains in
// turn. A round gives each the same time, in an order that changes. Percentiles are those of
// the lookups of all rounds. A ratio is taken within each round, and the median over the
// rounds counts, with the least and the largest. Answers are compared chain by chain, tail
// boundaries included. What is asked before the first round does not count. One seed makes
// the same hashes.
package vllm
