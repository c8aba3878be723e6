// Package backend says what the lookup service needs of a store that is not its
// own: a Mooncake store, a Redis, or what an embedding program brings along.
//
// # Keys
//
// A key is the reference's key string of one block in one place, as
// coordinator.AppendKey writes it, so that a service looks into a pool that vLLM
// filled. Backends do not take keys apart.
//
// # Time
//
// The service calls a backend from several goroutines at once, never on an event
// loop, and bounds every call by the deadline of its context. A call must return
// soon after its context ends: the worker that makes it waits for nothing else.
//
// # Failing
//
// A lookup fails open: when Exists fails, the hit is 0, the failure is counted, and
// after a few in a row a circuit breaker spares the store and the callers for a
// while. A Store, an Evict or a Reset that fails is refused with the error's text.
// Errors should wrap a sentinel of this package where one fits. A backend must not
// panic.
package backend
