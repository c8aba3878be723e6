// Package lookup is the service of hitline, in process: how many leading tokens of a
// prompt, given its block hashes, are in the pool and loadable?
//
// A program makes a [Service] of one engine's [coordinator.Pool], and says what is stored and what is gone:
//
//	service, err := lookup.NewService(lookup.ServiceConfig{Pool: coordinator.Pool{HashBlockSize: 16}})
//	err = service.Store(ctx, coordinator.GroupRank{}, hashes)       // a worker has stored these blocks
//	hit, err := service.LookupPrompt(ctx, 70, hashes)               // hit.Tokens of 70 are loadable
//	err = service.Evict(ctx, coordinator.GroupRank{}, hashes)       // they are gone
//
// Hashes are those that the engine gives the blocks of HashBlockSize tokens: package blockhash computes them
// from token ids, and [coordinator.NewHashes] takes them joined. A Service borrows what it is given until the
// call returns, and may be called from any goroutine.
//
//   - [Service.LookupPrompt] takes a prompt of any length, [Service.Lookup] what vLLM's scheduler sends.
//     From the token on that an engine holds itself: [coordinator.Hashes.From].
//   - [Service.Explain] says why a hit ends where it does, [Service.Plan] which blocks to load for it.
//   - [Service.Store] and [Service.Evict] are about one group on one rank: of a group with larger blocks the
//     last hash of each. [Service.StorePrompt] stores in all groups what the engine's rules keep.
//   - [Service.Stat] has the counters, [Service.Reset] forgets everything.
//
// What is stored lies in a bounded memory index, which evicts what was used least recently
// (ServiceConfig.Memory), or in a store that a backend asks (ServiceConfig.Backend). A store that fails or is
// late is a hit of 0 without an error: see [Service.Lookup]. A Service opens no socket and need not be closed.
//
// The same methods are api.PrefixCache's, which a client has, too: lookup/client in place of NewService asks
// a server. lookup/server serves a Service over sockets, lookup/metrics exports the counters. Package
// coordinator has the rules that turn the presence of blocks into tokens.
//
// Programs are promised [Service] with its configuration, and the errors. What takes hashes piece by
// piece (Memory, Query, Change), PoolBackend and Renewer are for the server of this module, and may change in any release.
//
// # Inside
//
// The rest is for who changes this package. A Service has the rules of its pool, and a Memory or a
// PoolBackend; none of these know it. Over the memory index a lookup is a Query: each hash becomes a
// presence bit for each group when it arrives, and Finish applies the rules to the bits. A server adds hashes
// as it receives them; Lookup adds all at once. A Change is a store or an evict whose keys arrive in pieces.
//
// Over a store a lookup needs all hashes that can change its answer, see Needed. Five parts serve it:
//
//   - SharedBackend: the store of several pools, its health, calls that end in time, the memory for keys.
//     Whatever asks is a request, whose outcome is told in one place: end.
//   - storeMemory: which blocks calls have found, and until when that holds. It owns the epoch.
//   - PoolBackend: the store as one pool asks it. A remoteLookup asks in rounds until the answer is certain
//     (coordinator.Lookup), or peeks, or asks nothing. Equal ones in flight share an answer.
//   - changes of a store, and Renewer. Only it, and calls of a backend, have goroutines.
//
// # Glossary
//
//   - lookup: the question above. The answer is the hit, in tokens.
//   - group rank: one group on one rank. A store or an evict is about one.
//   - place: the index's number of a group rank.
//   - group set: groups whose keys are looked up at the same positions, in one pass.
//   - peek: a lookup of what nobody is about to load, which leases nothing.
//   - epoch: a time in which no keys have gone from a store, as far as is known.
//   - memory account: what peers make a server hold, in bytes, with a bound.
//
// # Layout
//
//	service.go        Service; stat.go, size.go, masks.go, explain.go what it tells, errors.go
//	rules.go          what the numbers of a request mean in its pool
//	memory.go         the memory index; query.go, change.go what arrives in pieces
//	group_rank.go     group ranks and their places; reset_rank.go, rank_runs.go, group_set.go
//	shared_backend.go a backend of several pools; request.go one request of it
//	breaker.go        its health; breaker_log.go what is logged of it
//	change_calls.go   changes end with their context, or are abandoned; call_durations.go
//	key_memory.go     the memory of all keys; cpu_tokens.go who may build them: internal/admission
//	remember.go       what is answered without a call; block_memory.go, block_table.go, epoch.go
//	pool_backend.go   a backend as one pool asks it; pool_change.go, pool_lookup.go, look.go
//	remote_lookup.go  one lookup over it; coalesce.go equal ones
//	renew.go          keeps blocks before the start of lookups; renewer.go the queue
//
// # Invariants
//
//   - In the steady state a lookup over the index writes to no cache line that lookups on other
//     cores write to or read, so that lookups scale with the cores.
//   - A lookup over the index does not allocate in the steady state. The work and memory of every lookup
//     are proportional to min(hashes, tokens / hash block size) and the groups, wherever it starts.
//   - A bit says that the block was there at some moment between the request's first byte
//     and its reply. A reset in between clears all bits.
//   - A block that counts as present without a call was found within half of the store's lease, counted
//     from before that call was written, in the same epoch of the store.
//   - A backend that is slow or dead costs a lookup a hit of 0, at most some milliseconds
//     past its deadline.
//   - An error without api.ErrPartlyDone means that nothing was changed, as far as a store tells.
//
// # Ownership and concurrency
//
// Hashes and keys passed in are only borrowed. A query holds pooled bitsets from Begin
// to Release. The keys of a call of a backend are held until it returns, also when
// nobody waits for it any longer. Service and SharedBackend are safe for concurrent use; a Query and a
// Change belong to one goroutine at a time.
package lookup
