// Package bufpool pools the memory that every request needs: byte buffers ([Buffer], over
// bytebufferpool) and slices of 64-bit words ([Words]), such as bitsets. No promise: it is internal
// to this module, and its API may change in any release.
//
// # Ownership
//
// [Get], [GetFor] and [GetWords] return an object that belongs to the caller. The owner may pass it
// on; then the receiver is the owner. Only the owner reads, writes and appends. The owner
// calls Release once. After Release nobody may use the object, its slice, or any other
// slice of the same array: the next Get, on any goroutine, may return that memory.
//
//	Get ──► owner ──► … ──► owner ──► Release
//	        └── slices of B or W are borrowed: valid until Release ──┘
//
// A function that is passed a slice borrows it until it returns, unless its documentation
// says otherwise. To keep the bytes longer, it copies them. Memory that something later
// still reads (an asynchronous write, a worker) is released when that has finished.
//
// It is no error not to call Release: the garbage collector frees the memory.
//
// An append that grows B moves the bytes to a new array. Slices of B from before the append
// still point into the old array, so slice B after the last append.
//
// # Debug builds
//
// Builds with the race detector check the rules; [Debug] is true there:
//
//   - Release overwrites the memory with 0xCC bytes, so that a use after Release reads
//     wrong data in every test run.
//   - Released memory is never reused, so those bytes stay.
//   - A second Release of an object panics and names the file and line of both calls.
//
// Other builds pay for none of this. There a second Release gives one array two owners.
//
// # Limits
//
// A buffer above 1 MiB, or words above 256 KiB, are allocated and never pooled. The pools
// shrink: memory that is unused over two garbage collections is freed. In addition, [GetFor]
// reuses up to four arrays of 1 to 8 MiB, which are never freed.
//
// Get, appends and Release allocate nothing as long as the sizes are similar. Every 42,000
// releases bytebufferpool measures the lengths that came back. From then on it drops
// buffers larger than the sizes that make up 95% of them, so that a rare large buffer is
// allocated again. GetWords has fixed size classes and no such rule.
//
// # Concurrency
//
// All functions are safe for concurrent use. The methods of an object are for its owner.
package bufpool
