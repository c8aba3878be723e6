// Package router says which engines hold the longest prefix of a prompt, and how much of it the shared store
// can load. A [Service] has models, each with a [fleet.Fleet]; the KV events of its engines fill it. Programs are
// promised all that it exports.
//
// # Glossary
//
//   - model: engines whose block hashes can be compared, with a tenant and a name.
//   - source: one publisher of KV events. It fills one holder of one model.
//   - holder: an instance, or one data-parallel rank of it. See package fleet.
//   - configured: a model or source of the configuration. Others come with a registration, and go with it.
//   - predicted: blocks that a router says an engine will have soon.
//   - dump: what the holders hold and where their sources are, at one moment.
//   - peer: another service, whose dump this one starts from.
//   - loadable: what the store that the model's engines share can load now. Only that is asked of the store,
//     and only if wanted, as asking grants leases.
//
// # Layout
//
//	service.go  Service, its configuration and errors
//	models.go   models: by name, made by a source, dropped with their last source
//	sources.go  sources: Add, Register, Unregister and their state
//	query.go    Query: by hashes or by tokens, with what is loadable
//	hashing.go  block hashes of tokens, in pieces
//	predict.go  Predict, and holders that no source fills
//	dump.go     WriteDump: what the holders hold and where their sources are, at one moment; dump_load.go LoadDump
//	replica.go  Start from the dump of a peer, and Ready; peers.go the dump of a peer over HTTP
//	httpapi/   the same over HTTP
//
// # What is promised
//
// A prefix is never longer than what the engine's events say: see package fleet. It is about whole blocks.
// An engine computes at least the last token of a prompt, also if all its blocks are held; nothing is
// subtracted for that.
//
// # Replicas
//
// A service that starts from a dump reads only what its engines have published since, if their replay sockets still
// have it: see events.Checkpoint. A holder counts for nothing until then. Dumps are trusted: whoever writes one
// decides what is held.
//
// # Concurrency
//
// Service is safe for concurrent use. Queries wait for no change of the models or sources.
package router
