// Package index is the pool index in memory: which block hashes exist, for which
// group and rank. It is bounded in bytes and entries and evicts what was not used
// for longest.
//
// # Glossary
//
//   - key: the hash of a chunk, 1 to 64 bytes. Keys of different lengths are
//     different keys.
//   - place: a group on one rank, numbered by the caller.
//   - entry: one key, however many places hold it.
//   - coverage, class: the set of places that hold an entry; equal sets are one
//     class, numbered in two bytes.
//   - slot: the position of an entry in the log. segment: a stretch of the log.
//   - run: consecutive keys of a lookup with the same coverage.
//   - stretch: consecutive slots that a lookup has found.
//
// # Layout
//
//	table (tag → slot)        log
//	directory → page ─┐       segment 0  keys  [k0][k1][k2] ... 4096 records
//	512 cells         ├────▶             class  c0  c1  c2
//	tag<<32 | slot+1  ┘                  newer, older: recency list
//	                          segment 1 ...
//
// Requests are chains and chains are stored in order, so the keys of a stored
// chain lie one after the other in the log. A lookup asks the table once where
// its chain begins, then a kernel compares the request with the log as two arrays
// until they part, and asks the table again.
//
// # Invariants
//
//   - A slot has a class other than noClass exactly while it holds an entry; it is
//     then in the table and in the recency list once, otherwise in the free list.
//   - Records of free slots may hold anything: only the class says that a record
//     counts.
//   - Presence is decided by comparing whole keys; tags and positions are hints.
//   - The memory never exceeds MaxBytes: a segment is added only if the table that
//     its slots may need fits as well.
//
// # Recency
//
// Looking up and storing use a chain tail first, so that the ends of cold chains
// are evicted before their beginnings. What lookups touch is queued and applied
// before the next change of the index.
//
// # Concurrency
//
// A reader-writer lock, held for at most one batch: Probe for the keys of one
// read buffer, Store and Evict for 256 keys, touching for 4,096 entries. No
// lookup waits longer than for one of those. A Coverage is immutable.
//
// # Ownership
//
// Keys passed in are only borrowed; nothing returned points into the log.
package index
