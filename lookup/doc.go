// Package lookup is the service of hitline, in process: how many leading tokens of a
// prompt, given its block hashes, are in the pool and loadable? It answers over the
// memory index or over a remote backend. lookup/server serves it over sockets,
// lookup/client asks such a server, lookup/metrics exports its counters to Prometheus.
// This package opens no sockets, and starts goroutines only for calls of a backend.
//
// # Glossary
//
//   - lookup: the question above. The answer is the hit, in tokens.
//   - group rank: one group on one rank. A store or an evict is about one.
//   - place: the index's number of a group rank.
//   - plan: a lookup with the load masks of its hit, the chunks to load.
//   - query: one lookup in flight over the memory index. Hashes are added as they arrive
//     and become presence bits at once.
//   - group set: groups whose keys are looked up at the same positions, in one pass.
//   - work: the cost of a query or change, counted in units of about one hash compared. A
//     query whose work is used up is suspended, and goes on when it is called again.
//   - lease: the CPU token and the share of the key memory of a lookup over a backend.
//   - small request: one with few hashes. It has a part of the memory, the CPU tokens and the
//     workers that larger ones do not use.
//   - memory account: what peers make a server hold, in bytes, with a bound.
//
// Most programs need Service alone. Query, Change and most of Remote are for servers that
// receive a request in pieces.
//
// # Layout
//
//	service.go        Service; explain.go, stat.go and errors.go what belongs to it
//	counters.go       the counters of lookups, striped
//	query.go          one lookup over the memory index
//	masks.go          the masks of a pool, and plans: a lookup with the masks of its hit
//	group_set.go      groups that are looked up together
//	rank_runs.go      which rank lacks a block, for an explain
//	change.go         a store or evict that arrives in pieces
//	store_prompt.go   a store of a prompt: its checks; prompt_writer.go its hashes, in pieces
//	group_rank.go     group ranks and their places; reset_rank.go a reset of some of them
//	remote.go         lookups over a backend; remote_change.go changes of it
//	shared_backend.go a backend of several pools; remote_memory.go the memory of their hashes
//	remote_config.go  how a backend is used; strategy.go the calls of a lookup
//	coalesce.go       equal lookups in flight share one answer
//	breaker.go        the circuit breaker; breaker_log.go what it logs
//	backend_calls.go  calls that end with their context, or are abandoned; call_durations.go their durations
//	key_lease.go      what one lookup holds; key_memory.go the memory of the keys of all
//	yield.go          yielding the processor to event loops while keys are built
//	memory_account.go the account of all that peers make a server hold
//
// # One lookup
//
//	Service.Lookup, or a server with hashes as they arrive
//	       → Query.Add: index.Probe → bits of each group
//	       → Query.Finish: coordinator.Answer
//
// and over a remote backend
//
//	Service.Lookup, or a server's worker
//	       → Remote.Lookup: coalescer.join, as leader
//	       → coordinator.Gallop or Lookup → keyLease.Exists
//	       → Remote.exists, under the breaker → backendCalls.run → Backend.Exists
//
// # Invariants
//
//   - In the steady state a lookup over the index writes to no cache line that lookups on other
//     cores write to or read, so that lookups scale with the cores.
//   - A lookup over the index does not allocate in the steady state. Its work and memory
//     are proportional to min(hashes, tokens / hash block size).
//   - A suspended query holds no lock. What it answers does not depend on where it was suspended,
//     except that blocks may come and go meanwhile.
//   - A bit says that the block was there at some moment between the request's first byte
//     and its reply. A reset in between clears all bits.
//   - A backend that is slow or dead costs a lookup a hit of 0, at most some milliseconds
//     past its deadline.
//
// # Ownership
//
// Hashes and keys passed in are only borrowed. A query holds pooled bitsets from Begin
// to Release. The keys of a call of a backend are held until it returns, also when
// nobody waits for it any longer.
//
// # Concurrency
//
// Service and Remote are safe for concurrent use. A Query and a Change belong to one
// goroutine at a time.
package lookup
