// Package vllm compares the lookup of a vLLM release with hitline's, over one Mooncake master. No
// promise: it is internal to this module, and its API may change in any release.
//
// # Who is asked
//
//   - vllm: the release's own lookup client and lookup server, unmodified modules of its
//     wheel, each in a process of its own as in an engine; the server has a store client of
//     the mooncake package
//   - hitline: hitline serve over the mooncake backend, asked by the Python client by which
//     the plug-in replaces vLLM's; servers that remember no answer of the
//     store, with and without an account of what was asked, and one as it is by default
//   - bytes: the master itself, which is sent requests made before for the keys that tell the
//     hit: the least that any lookup takes
//
// An engine is a Python process that asks all of them. It times one call of lookup, from the list
// of hashes to the hit. All servers of lookups listen on unix sockets. Nothing is pinned.
//
// # What is measured
//
// A cell is what the store holds: of prompts of one [Shape] the keys that [Presence] says. Each
// side has keys of its own, which differ in their first letter, so that none finds what another has
// just read in the master's caches. A row is one way to ask for these prompts, an [Ask].
//
// The engine asks the sides in turn, lookup by lookup, in an order that changes; who is not asked
// does nothing. With [Blocked] a side has its steps in one run, which is split into rounds.
// Percentiles are those of the lookups of all rounds. A ratio is taken within each round, and the
// median over the rounds counts, with the least and the largest. Answers are compared prompt by
// prompt, tail boundaries included. One seed makes the same hashes.
package vllm
