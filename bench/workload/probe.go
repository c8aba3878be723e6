package workload

import "github.com/hitline/hitline/bench/measure"

// probeTokens is a multiple of every block size that is likely, 2^14 * 3^2 * 5 * 7 tokens: a
// server that was not described is asked for so many.
const probeTokens = 1 << 14 * 9 * 5 * 7

// ProbeHashes is how many hashes [Probe] has stored.
const ProbeHashes = 2

// Pool is what a measurement needs to know of a pool with one full-attention group.
type Pool struct {
	BlockSize  int  // tokens that one hash covers
	LeavesLast bool // a prompt that is there whole hits a block less, as vLLM has it
}

// Probe asks a server for its pool: it has ProbeHashes hashes stored, looked up twice, and evicted. The
// functions do that over one connection. An error that is not theirs wraps [measure.ErrOptions].
func Probe(store func() error, lookup func(tokens uint32) (uint32, error), evict func() error) (p Pool, err error) {
	if err = store(); err != nil {
		return p, err
	}
	var whole uint32
	found, err := lookup(probeTokens)
	if err == nil {
		whole, err = lookup(found) // of a prompt that ends with the hashes
	}
	if err != nil {
		return p, err
	}
	if found == 0 || found%2 != 0 || whole != found && whole != found/2 {
		return p, measure.BadOptions("to 2 stored hashes the server answered %d and %d tokens; give one whose pool has one full-attention group", found, whole)
	}
	return Pool{BlockSize: int(found / ProbeHashes), LeavesLast: whole < found}, evict()
}

// Answer returns the tokens that a lookup of a prompt hits, of whose hashes the first are stored.
func (p Pool) Answer(hashes, stored int) uint32 {
	if p.LeavesLast && stored == hashes {
		stored = max(stored-1, 0)
	}
	return uint32(stored * p.BlockSize)
}
