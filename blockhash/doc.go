// Package blockhash computes the block hashes of prompts as engines do, from token ids.
package blockhash
