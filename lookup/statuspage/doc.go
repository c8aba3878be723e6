// Package statuspage serves what a lookup server is doing: as a page for people, and as JSON. No
// promise: it is internal to this module, and its API may change in any release.
//
//	GET  /         the page; it reads /status every 2 seconds, and asks for nothing of another origin
//	GET  /status   everything that the page shows, in JSON
//	POST /explain  why a lookup hits no more than it does
//
// docs/monitoring.md describes the page and the JSON.
//
// # Layout
//
//	page.go      Page: its routes, headers and bounds
//	document.go  the page, of index.html, page.css and page.js, and its content security policy
//	access.go    who may ask, and for what
//	status.go    the reply to /status
//	sampler.go   the counters of the last hour, one sample a minute
//	latency.go   quantiles of a histogram
//	explain.go   /explain
//
// # Invariants
//
//   - The page adds text to the document as text, never as HTML: names of pools and errors may come
//     from peers.
//   - A request waits for nothing, except for the backend in /explain. Its reply is computed into
//     memory, and how many are computed at a time is bounded.
//   - If the server has credentials, connections, refusals and explanations need the token of an
//     administrator.
package statuspage
