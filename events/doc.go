// Package events follows the KV events of engines: which blocks an engine says that it has
// cached, removed or cleared. An unmodified vLLM or SGLang publishes them over ZeroMQ. What an
// engine holds goes to a [Holder].
//
// # Glossary
//
//   - publisher: the ZeroMQ socket of one engine, or of one data-parallel rank of it.
//   - source: one publisher as it is followed here, with a name.
//   - batch: one message of a publisher: a sequence number and events.
//   - event: blocks that were stored or removed, or that all were cleared.
//   - tier: the medium that holds a block, such as the GPU, with its locality and ownership.
//   - gap: sequence numbers that did not arrive. It is filled from the replay socket.
//   - hole: a gap that cannot be filled.
//   - stale: a source that may have missed events. None of its blocks counts as held.
//   - complete: a source that holds all that its engine has said since it started.
//   - copies: an engine may cache one block twice. It then says so twice, and removes each.
package events
