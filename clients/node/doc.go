// Package node holds a client for Node, client.mjs, and its tests. The client is written by
// docs/protocol.md alone: it shows that the page is enough.
package node
