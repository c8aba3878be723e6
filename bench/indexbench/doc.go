// Package indexbench measures the pool index of package index in this process,
// beside a Go map in the same run. It checks every answer it times.
//
// # Speed
//
// [Speed] fills an index with chains of [ChainLen] random hashes and looks all of
// them up, pass after pass:
//
//   - chain: the chains in random order, each once a pass.
//   - random: all hashes in one random order, cut into requests of ChainLen.
//   - miss: requests of [MissLen] hashes of which the first is absent, a different
//     one each time, so that what the table holds of it is cold. Where a request
//     begins depends on the answer to the one before, so that no two overlap.
//
// A lookup is a full-attention one: Begin, Probe for all hashes until one is
// absent, End, and so includes the noting of what was used. The map is a
// map[[N]byte]uint32, presized, with the same keys in the same order; they are
// cut as arrays beforehand, so its loop converts and allocates nothing. Passes of
// index and map alternate, so that a disturbance meets both. All chain passes come
// before the first in random order: what is looked up counts as used, and hashes
// used in random order leave an order of use in the index that no chains make,
// which the chain passes behind would have to undo.
//
// Before each pass the collector runs, outside the clock, so that it has nothing
// to do during the pass: else what one side left behind would be collected at the
// expense of the other, and a pass that allocates nothing would still be measured
// with half of the cores at work for another.
//
// At the end up to 1,048,576 of the hashes are stored in an index of their own, one a
// call and each as a chain of its own, which is what costs a store and an entry most.
//
// # Memory
//
// The bytes of an index are what the heap holds after two collections
// (MemStats.HeapAlloc) plus what is mapped beside the heap, less the same from
// before the index was made. What is mapped is the growth of the process's
// resident anonymous memory that the Go runtime does not account for (its Sys less
// HeapReleased); free pages are given back before both readings, which leaves an
// error of a few MiB, always downward. The hashes of the filling are generated one
// chain at a time, so that nothing else is on the heap and the collector runs as
// often as it would in a server of that size.
//
// The peak is the largest of samples taken every [samplePeriod] during the
// filling: all objects on the heap, those not yet collected too, plus what is
// mapped.
//
// # Churn
//
// [Churn] times lookups of chains that stay in an index that is full, in turns
// quietly and while another goroutine stores new chains at a steady rate. Every
// store makes an entry go: half of them leave by the bound, half are evicted by
// their keys. A chain that stays may only be missing something if nothing looked
// it up while the index could have been refilled.
//
// Lookups fall due by a clock, at a fixed rate, and each counts from when it was due
// until its answer. So a stall shows as the waits of all that fell due meanwhile, as
// it would to callers who do not wait for each other. A rate well below what one core
// can do lets the quiet phase keep up. Lookups that were due and not begun when their
// phase ended count with their wait until then. That is a lower bound, and so is each
// figure that it may have lowered: [Waits] says which, and tables print them with ≥.
// Beside the ratio of the p99 of all rounds stands the median of the rounds' own ratios, each of
// a busy phase to the quiet one in front of it.
// The caches are colder than in lookups back to back, so the medians are higher.
//
// # Figures
//
// All reports use the median, percentiles and spread of bench/internal/figure: what a
// pass has one of counts by its median over the passes, percentiles of waits are those
// of all lookups of all rounds. One seed makes the same hashes and the same orders.
//
// # Traces
//
// [Replay] walks a recorded trace: each request is looked up until a block is
// absent, which is timed, and then stored, which is not. The map does the same in
// passes of its own and must answer alike. [Capacities] counts the hits of bounded
// indexes beside those of known policies; see there.
package indexbench
