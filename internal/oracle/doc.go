// Package oracle is a slow second implementation of the lookup rules, for tests. It follows
// the rules as they are written down, entry by entry. It imports no other package of the
// module, so that the fast implementations are compared with code that they do not share.
//
// The reference is the vLLM MooncakeStore connector. The package implements the releases since
// 0.24.0 and a commit before them, of 2026-06-20. Its own test compares it with the recorded
// answers of each. Which ranks store a block, and what their keys are called, is recorded only.
//
// # Glossary
//
//   - Raw hash i stands for the tokens [i*H, (i+1)*H) of a prompt and all before them. H is
//     the hash block size.
//   - Chunk c of a group with blocks of B tokens has the raw hash c*k + k - 1 as its key,
//     where k = B/H is the group's stride.
//   - L is the scheduler block size.
//   - A is the alignment of hits: H in fine-grained mode, otherwise L.
//   - An attention group is all groups of equal spec.
//   - A dropped group takes no part in lookups. The others are the store groups; keys number
//     them from 0.
//   - A tail boundary names the hash under which the last block of a hit is stored.
//   - A mask has one entry for each chunk of a group: true for a real block.
//   - A class is the name of the exception that the reference raises, "" for none.
//
// # Layout
//
//	pool.go     Pool, Group, store groups, attention groups, ranks
//	find.go     FindHit: the common hit of all groups
//	masks.go    store, lookup and load masks
//	lookup.go   Lookup: a whole lookup over a store
//	random.go   random pools and contents
package oracle
