// Package holders answers the router's question: which engines have most of a prompt, and how
// much of it the shared store can load.
package holders
