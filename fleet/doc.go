// Package fleet keeps which engine holds which KV cache blocks, and says who holds the longest
// prefix of a prompt.
package fleet
