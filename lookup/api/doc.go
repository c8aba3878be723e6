// Package api has the types that a hitline service, server and client share:
//
//   - [PrefixCache], the interface of a service and of a client, and its [Hit]
//   - [Explanation] and [Stat], the JSON documents of the requests explain and stat
//   - [SplitAddress], the syntax of addresses
//
// It links neither the server nor the client. Hit, Stat and Explanation are plain values.
// Copies share the slice of Hit.TailBoundaries, the map of Stat.Closed, and the slice of
// Explanation.Groups with what its pointers point to.
package api
