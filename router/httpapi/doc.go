// Package httpapi answers over HTTP who holds the longest prefix of a prompt, in the shape that routers know from other
// indexers of KV events. No promise: it is internal to this module, and its API may change in any release. What is
// promised is what it answers.
//
//	POST /query          who holds most of a prompt of these token ids
//	POST /query_by_hash  the same by block hashes
//	POST /predict        an instance will soon have the blocks of a prompt
//	POST /register       follow the KV events of an engine
//	POST /unregister     and no longer
//	GET  /services       models, holders and sources, with their state
//	GET  /health         the server lives
//	GET  /ready          the server has what it needs
//	GET  /dump           all that it knows, for another server
//	GET  /openapi.yaml   the description of all this
//
// openapi.yaml is the interface. A test asks each operation for each status and error code in it.
//
// # Layout
//
//	config.go   Config, Access and Limits
//	access.go   what a sender may do, by the rules of a listener
//	handler.go  Handler: the endpoints, and what is checked before one answers
//	request.go  bodies: fields, and how each is read
//	decode.go   JSON of the body, token by token (jsontext), with bounds
//	answer.go   queries and predictions
//	register.go sources that come and go; services.go the state of all
//	errors.go   the status and code of each error; metrics.go
//
// # One request
//
//	origin and host → path and method → Authorize, permissions → Content-Type → a place among MaxRequests
//	→ body, within BodyTimeout and MaxBody → answer in memory, within ReplyTimeout → the place is free → reply
//
// So nothing of a body is read for a sender who may not ask, and a client that does not read its reply holds no place. A
// body is decoded as it arrives: it takes the memory of its token ids and hashes, not that of its text. /health, /ready and
// /openapi.yaml need no place. A dump is sent as it is made. If all places are taken, the body that has been arriving for
// longest, and for a second at least, is ended for the next request: see arrivals.go.
//
// # Ownership
//
// Requests and answers are pooled. Nothing of a request is used after its answer is in memory.
package httpapi
