// Package client asks a hitline server, in the raw dialect of docs/protocol.md, over TCP
// and unix sockets: Client waits for its answers, AsyncClient does not. It links neither
// the server nor the index, and starts no goroutine before a client is made.
//
// # Layout
//
//	client.go         Client and its requests
//	batch.go          many lookups in one write
//	anchors_client.go lookups by anchors
//	async.go          AsyncClient; anchors_async.go its lookups by anchors
//	pool.go           connections that serve one call at a time
//	conn.go           one of them
//	pipe.go           a connection on which many calls are under way
//	redial.go         making connections, and pauses while the server is away
//
// # Concurrency and ownership
//
// Client and AsyncClient are safe for concurrent use. A Client's call does its own input
// and output on a connection that is its alone; with WithPipeline, and in an AsyncClient,
// one goroutine owns the connection, and one that it joins reads from it. What callers
// pass is only borrowed, until the call returns.
package client
