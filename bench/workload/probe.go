package workload

// ProbeTokens is a multiple of every block size that is likely, 2^14 * 3^2 * 5 * 7 tokens: a
// server that was not described is asked for so many.
const ProbeTokens = 1 << 14 * 9 * 5 * 7

// ProbeHashes is how many hashes [Probe] has stored.
const ProbeHashes = 2

// Probe asks a server of one full-attention group for its block size: it stores ProbeHashes
// hashes, looks them up twice, and evicts them. found are the tokens that they are in a longer
// prompt, whole those of a prompt that ends with them: fewer where the last block of a prompt is
// left to compute, as in releases of vLLM.
func Probe(store func() error, lookup func(tokens uint32) (uint32, error), evict func() error) (found, whole uint32, err error) {
	if err = store(); err != nil {
		return 0, 0, err
	}
	if found, err = lookup(ProbeTokens); err == nil {
		whole, err = lookup(found)
	}
	if err != nil {
		return 0, 0, err
	}
	return found, whole, evict()
}
