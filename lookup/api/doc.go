// Package api has the types that a hitline service, server and client share:
//
//   - [PrefixCache], the interface of a service and of a client, and its [Hit]
//   - [GroupMask] and [Plan], which chunks to load, to store or to look up
//   - [PromptStore], a store of a prompt, and [PartsError], what of it was not stored
//   - [Explanation], [Stat] and [Instance], the JSON documents of explain, stat and ping
//   - [Histogram], what a server and a service have observed
//   - [SplitAddress], [SplitList] and [AddPort], the syntax of addresses
//
// Programs are promised all of it. It links neither the server nor the client. Hit, Stat and
// Explanation are plain values. Copies share the slice of Hit.TailBoundaries, the maps of Stat, and
// the slice of Explanation.Groups with what its pointers point to.
package api
