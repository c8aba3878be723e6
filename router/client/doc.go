// Package client asks a server over HTTP, at its router.listen, which engines have most of a prompt: see docs/router.md and
// router/httpapi/openapi.yaml. It links no server and no index. Programs are promised all of it.
//
//	c, err := client.New("http://127.0.0.1:8557")
//	answer, err := c.Query(ctx, &client.Query{Prompt: client.Prompt{Tokens: tokens}})
//	for _, engine := range answer.Engines { // the longest prefix first
//
// A Client keeps its connections open and may be used by many goroutines. What it gets belongs to the caller. It skips what a
// later server adds to a reply; JSON of an Answer and of Services has that, too.
//
// # Layout
//
//	client.go     Client and its methods
//	options.go    what can be configured
//	prompt.go     what is asked
//	answer.go     what is answered
//	services.go   the state of models and sources
//	transport.go  one request
//	errors.go     sentinels, and which error gets which
package client
