//go:build linux

package compare

import "github.com/hitline/hitline/bench/workload"

// lookups are those of one number of hashes. Not safe for concurrent use: a lookup changes the
// hash at which its chain misses, wherever that is held.
type lookups struct{ *workload.Chains }

// newLookups makes chains of the given number of hashes. They hit whole until cut.
func newLookups(o Options, hashes int) *lookups {
	return &lookups{workload.NewChains(workload.ChainOptions{
		Chains: workload.NumChains(hashes, o.Entries, o.Rotate), Hashes: hashes, BlockSize: blockSize, Seed: workload.Seed(o.Seed),
	})}
}

// tokens returns those of a chain.
func (w *lookups) tokens() uint32 { return w.Tokens(w.Hashes()) }

// strings returns the hashes of a chain, one by one.
func (w *lookups) strings(i int) []string {
	all := make([]string, w.Hashes())
	for block := range all {
		all[block] = string(w.Hash(i, block))
	}
	return all
}

// requestSet holds the bytes of one request for each chain. All have the same size,
// and their hashes are at equal distances.
type requestSet struct {
	of     *lookups
	bytes  []byte
	size   int // of a request
	first  int // where the first hash begins in a request
	stride int // from a hash to the next
}

// requests makes them from a template, a request with any hashes.
func (w *lookups) requests(template []byte, first, stride int) *requestSet {
	set := &requestSet{of: w, bytes: make([]byte, 0, w.Len()*len(template)), size: len(template), first: first, stride: stride}
	for i := range w.Len() {
		set.bytes = append(set.bytes, template...)
		for block := range w.Hashes() {
			copy(set.from(i, block), w.Hash(i, block))
		}
	}
	return set
}

// from returns a chain's request from one of its hashes on.
func (s *requestSet) from(chain, block int) []byte {
	return s.bytes[chain*s.size:][:s.size:s.size][s.first+block*s.stride:]
}

// put writes the absent hash of a lookup into its chain's bytes, and returns these.
func (s *requestSet) put(l workload.Lookup) []byte {
	if !s.of.Hits(l) {
		copy(s.from(l.Chain, l.Stored), l.Absent[:])
	}
	return s.bytes[l.Chain*s.size:][:s.size:s.size]
}
