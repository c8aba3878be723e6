// Package backend defines what the lookup service needs of a remote store of blocks: a Mooncake
// store, a Redis, or one that an embedding program implements. No promise: it is internal to this
// module, and its API may change in any release.
//
// # Glossary
//
//   - block: the KV cache of one chunk of tokens, of one layer group, on one rank.
//   - key: the reference's key string of one block, as coordinator.Coordinator.KeyPrefix
//     begins it, then the block's hash in hex. So a service can look into a pool that vLLM has filled.
//   - pool: the blocks of one model configuration.
//   - change: a Store, an Evict or a Reset.
//
// Backends treat keys as opaque, unless their store needs a part of a key.
//
// # Concurrency and time
//
// The service calls a backend from several goroutines at once, never from an event loop. The
// context of every call has a deadline. A call must return soon after its context ends,
// because its worker waits for nothing else; see Backend for changes.
//
// # Errors
//
// A lookup fails open: if Exists fails, the hit is 0 and the failure is counted. After a few
// failures in a row a circuit breaker stops calling the store for a while. A change that
// fails is answered with the text of its error. Errors should wrap a sentinel of this
// package where one fits. A backend must not panic.
package backend
