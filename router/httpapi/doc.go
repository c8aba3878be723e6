// Package httpapi answers over HTTP which engine holds the longest prefix of a prompt, in the shape that routers know
// from other indexers of KV events. No promise: it is internal to this module, and its API may change in any release.
// What is promised is openapi.yaml. A test asks each operation for each status and error code in it.
//
// # Layout
//
//	config.go   Config and Access
//	access.go   what a sender may do, by the rules of a listener
//	handler.go  the operations, and the way of a request through them
//	memory.go   what requests hold, and that no peer takes more than it leaves
//	decode.go   JSON of a body as it arrives, in bounded memory and steps
//	prompt.go   the body of queries and predictions; answer.go the answers
//	register.go sources that come and go; services.go the state of all; dump.go all that is known
//	metrics.go  what it counts
//	errors.go   the status and code of each error
//
// # One request
//
//	origin and host → path and method → Authorize, permissions → Content-Type → body → answer in memory → reply
//
// So nothing of a body is read for a sender who may not ask. A client that does not read its reply keeps no other out:
// it holds only its share of the memory. A body is decoded as it arrives, 4 KiB at a time, with the processor yielded in
// between. It takes the memory of its texts, of its token ids and of its hashes.
// /health, /ready and /openapi.yaml are always answered, and a dump is sent as it is made. The lists of bodies are
// pooled: nothing of one is used after its answer is in memory.
package httpapi
