// Package router says which engines hold the longest prefix of a prompt, and how much of it the shared store can load.
// A [Service] has models, each with a [fleet.Fleet]; the KV events of its engines tell what they hold. Programs are
// promised all that it exports, and those types of packages fleet, events and blockhash that it shows.
//
// # From an event to an answer
//
//	service.go            Service: its configuration and errors
//	source.go, allow.go   the form of a source, and which may be registered
//	sources.go            the registry: an events.Follower for each source, which tells a fleet.Holder
//	models.go             models, each with the fleet.Fleet of its holders
//	query.go, hashing.go  Query: by hashes or by tokens, with what is loadable
//	agreement.go, unsure.go   whether engines hash as configured; what an answer cannot know
//	kv_hints.go           where another engine fetches a prefix
//	predict.go            Predict, and holders without a source
//	dump.go, dump_load.go, replica.go, peers.go   dumps, and starting from that of a peer
//
// # Glossary
//
//   - model: engines whose block hashes can be compared, with a tenant and a name.
//   - source: one publisher of KV events, and the holder whose blocks they tell.
//   - holder: a data-parallel rank of an engine, see package fleet. It may have no source: then it is predicted, or of
//     a dump.
//   - configured: a model or source of the configuration. Others come with a registration, and go with it.
//   - predicted: blocks that a router says an engine will have soon.
//   - dump: what the holders hold and where their sources are, at one moment; a peer is a service that this one gets it
//     from.
//   - loadable: what the store that the model's engines share can load now. The store is asked only for
//     this, and only on demand: asking may grant leases.
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
