package compare

import "github.com/hitline/hitline/bench/workload"

// lookups are those of one number of hashes, in the forms that several clients ask with, made
// once. Not safe for concurrent use: a lookup changes the hash at which its chain misses,
// wherever that is held.
type lookups struct {
	*workload.Chains
	members  [][]any
	keys     [][]string
	requests map[string]*requestSet
}

// newLookups makes chains of so many hashes, together more than so many bytes. They hit whole
// until cut.
func newLookups(o Options, hashes int, rotate int64) *lookups {
	return &lookups{requests: map[string]*requestSet{}, Chains: workload.NewChains(workload.ChainOptions{
		Chains: workload.NumChains(hashes, o.Entries, rotate), Hashes: hashes, BlockSize: o.BlockSize, Seed: workload.Seed(o.Seed),
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

// asMembers returns the hashes of all chains as go-redis takes members of a set. They
// share the memory of the chains.
func (w *lookups) asMembers() [][]any {
	for i := len(w.members); i < w.Len(); i++ {
		members := make([]any, w.Hashes())
		for block := range members {
			members[block] = w.Hash(i, block)
		}
		w.members = append(w.members, members)
	}
	return w.members
}

// asKeys returns the hashes of all chains as go-redis takes keys: copies, into which a
// client puts the absent hash itself.
func (w *lookups) asKeys() [][]string {
	for i := len(w.keys); i < w.Len(); i++ {
		w.keys = append(w.keys, w.strings(i))
	}
	return w.keys
}

// requestSet holds the bytes of one request for each chain. All have the same size,
// and their hashes are at equal distances.
type requestSet struct {
	of     *lookups
	bytes  []byte
	size   int // of a request
	first  int // where the first hash begins in a request
	stride int // from a hash to the next
	encode func(to, hash []byte)
}

// plainHash is how most forms have a hash.
func plainHash(to, hash []byte) { copy(to, hash) }

// prepared returns the requests in a form. The first call makes them from a template, a
// request with any hashes, in which a hash is its encoding.
func (w *lookups) prepared(form string, template []byte, first, stride int, encode func(to, hash []byte)) *requestSet {
	if set := w.requests[form]; set != nil {
		return set
	}
	set := &requestSet{of: w, bytes: make([]byte, 0, w.Len()*len(template)), size: len(template), first: first, stride: stride, encode: encode}
	for i := range w.Len() {
		set.bytes = append(set.bytes, template...)
		for block := range w.Hashes() {
			encode(set.hash(i, block), w.Hash(i, block))
		}
	}
	w.requests[form] = set
	return set
}

// request returns the bytes of a chain's request.
func (s *requestSet) request(chain int) []byte { return s.bytes[chain*s.size:][:s.size:s.size] }

// hash returns a chain's request from one of its hashes on.
func (s *requestSet) hash(chain, block int) []byte {
	return s.request(chain)[s.first+block*s.stride:]
}

// put writes the absent hash of a lookup into its chain's bytes, and returns these.
func (s *requestSet) put(l workload.Lookup) []byte {
	if !s.of.Hits(l) {
		s.encode(s.hash(l.Chain, l.Stored), l.Absent[:])
	}
	return s.request(l.Chain)
}
