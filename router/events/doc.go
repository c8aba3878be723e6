// Package events follows the KV events of engines: which blocks an engine has cached, removed or
// cleared. An unmodified vLLM or SGLang publishes them over ZeroMQ. A [Holder] keeps what an engine
// holds. No promise: it is internal to this module, and its API may change in any release.
// What package router shows of it is promised there.
//
// # From the wire to a Holder
//
// A [Follower] follows one source and tells one [Holder] what it holds.
//
//	       socket -> tracker -> Decoder -> applier -> Holder
//	                    ^
//	replay socket ------+
//
// The tracker compares sequence numbers and decides which batches are applied; its table of states
// is in its comment. The applier counts copies. All run in one goroutine, one batch at a time, so
// that a slow Holder slows the publisher down. Live batches that arrive during a replay wait in the
// socket and at the publisher.
//
// A source takes SourceBytes of memory. For batches of more than 64 KiB, and for the copies that it counts, it takes
// from a [Memory] that all sources share: never more than it leaves to the others. A batch waits for memory for
// [Config.Timeout], then its connection ends with an error.
//
// # Glossary
//
//   - publisher: the ZeroMQ socket of one engine, or of one data-parallel rank of it.
//   - source: one publisher as it is followed here, with a name.
//   - batch: one message of a publisher: a sequence number and events.
//   - event: blocks that were stored or removed, or that all were cleared.
//   - tier: the medium that holds a block, such as the GPU, with its locality and ownership.
//   - gap: sequence numbers that did not arrive. The replay socket may still have them.
//   - lost: said of the batches of a gap that the replay socket lacks, and of one that cannot be read.
//   - stale: a source that may have missed events. None of its blocks counts as held.
//   - complete: a source for which all batches since the start of its engine, or since its last
//     clearing, were applied.
//   - copies: an engine may cache one block twice. It then stores it twice, and removes each.
//   - full report: an event that stores what is cached already, because a request asked for it.
//   - checkpoint: where a source is between two batches. Another Follower can go on from there.
//   - unheld: a block of a store that publishes what it stored and never what it removed. It is
//     counted and not held.
//
// # What is promised
//
// While a source is not stale, each block that its Holder has was cached by the engine, in as many
// copies at least, when it sent the batch that was applied last. If the source is also complete,
// nothing is missing but copies that [Config.ExactCopies] would count, and blocks of groups with a
// sliding window or the like whose event may be a full report. A Holder may be behind by what is on
// the way, and by batches at the end that were lost: those are found within six seconds if there is
// a replay socket, or with the next batch.
//
// # Going on elsewhere
//
// [Follower.Pause] stops a source between two batches, so that what its Holder has can be copied together with a
// [Checkpoint]. A Follower with [Config.Resume] and such a copy is in the state of one that has lost its
// connection: it begins with a replay from the last batch. What it holds counts only after that has shown that the
// publisher is the same.
package events
