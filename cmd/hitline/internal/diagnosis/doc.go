// Package diagnosis compares the configured pool with what is in a remote store. hitline
// doctor runs Examine once and prints its Report. The package only reads, and starts no goroutine.
//
// # Evidence
//
//   - A sample shows the names of the pools, their layout, and the lengths of their hashes.
//   - A prompt shows how many tokens a hash stands for. doctor also looks it up as a lookup does,
//     and reports where each group ends, and for want of which rank.
//
// Nothing is inferred from blocks that are there or not: the plug-in compares the pool exactly.
//
// # Glossary
//
//   - pool: the configured pool, coordinator.Pool. rules is its coordinator.
//   - sample: some of the store's keys, as the store lists them.
//   - stored: present in the store. Absent is the opposite. An absent block may never have
//     been stored, or it may have been evicted.
//   - finding: a note, which needs no change, or a problem, which says what to do.
//
// # Files
//
//   - store.go, report.go: what comes in and what goes out.
//   - examine.go, hit.go: one examination by doctor, and the lookup of its prompt.
//   - comparer.go: the pool that is compared, and how findings are worded.
//   - sample.go, compare_sample.go: keys, their names, layout and hash lengths.
//   - prompt.go: a prompt's numbers of tokens and hashes.
//
// # Ownership
//
// The caller owns the Store and closes it after Examine has returned. Prompt.Hashes is borrowed until Examine returns.
// A Report belongs to the caller.
package diagnosis
