// Package bufpool lends out memory that would otherwise be allocated for every request:
// byte buffers ([Buffer], over bytebufferpool) and bitset words ([Words]).
//
// # Ownership
//
// What Get or GetWords returns has one owner: at first the caller, then whoever the owner
// hands it to. The owner alone reads, writes and appends, and in the end calls Release,
// once. From that call on the object, its slice and every other slice of the same memory
// are dead: the next Get, on any goroutine, may return them.
//
//	Get ──► owner ──► … ──► owner ──► Release
//	        └── slices of B or W are borrowed: they die with Release ──┘
//
// So a function that is handed a slice borrows it until it returns, unless its
// documentation says otherwise; to keep the bytes longer it copies them. Whoever hands
// memory to something that finishes later (an asynchronous write, a worker) releases it
// where that ends, and not before.
//
// Not calling Release is no error. The memory is then left to the garbage collector, and
// the pool has one less to lend.
//
// An append to B that grows it moves the bytes to a new array: slices of B taken before
// still point into the old one. Take them after the last append.
//
// # Traps
//
// In debug builds (tag hitline_debug, or -race; [Debug] says so) Release overwrites the
// memory with bytes of 0xCC, so that whoever kept a slice reads nonsense and not, most of
// the time, the right thing. Memory once released is never lent again in such a build, so
// the nonsense stays. A second Release of the same object panics and says where the first
// one was. Other builds pay for none of this, and there a second Release gives the same
// memory to two owners.
//
// # Limits
//
// A buffer of more than 1 MiB, or words of more than 256 KiB, are allocated when asked for
// and never kept. Pools shrink by themselves: what two garbage collections in a row find
// unused is freed.
//
// While the sizes stay alike, Get, appends and Release allocate nothing. If they vary, some
// appends do: after every 42,000 releases bytebufferpool looks at the lengths that came
// back, and from then on keeps no buffer larger than the commonest sizes, those that
// together make up 95% of them. GetWords knows its sizes beforehand and has no such rule.
//
// All functions of the package may be called from any number of goroutines; the methods of
// one object only by its owner.
package bufpool
