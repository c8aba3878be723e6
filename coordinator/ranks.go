package coordinator

// Rank is the rank of a worker: tensor, pipeline, prefill-context and decode-context
// parallel. TP is the KV shard as in netproto.GroupRank.
type Rank struct {
	TP, PP, PCP, DCP int
}

// Ranks returns the ranks that must all hold a block of group g for it to be present, in
// the order of the reference's keys. The caller must not change the slice.
func (c *Coordinator) Ranks(g int) []Rank { return c.groups[g].ranks }

// requiredRanks computes Ranks. At 2026-08-17 they depend on the group. Before, they are
// the same for all groups, with the PCP and DCP rank of the worker that looks up.
func (c *Coordinator) requiredRanks(g int) []Rank {
	p := &c.pool
	if p.Revision != Revision20260817 {
		ranks := make([]Rank, 0, min(p.TPSize, p.NumKVHead)*p.PPSize)
		for t := range min(p.TPSize, p.NumKVHead) {
			for pp := range p.PPSize {
				ranks = append(ranks, Rank{TP: t, PP: pp, PCP: p.PCPRank, DCP: p.DCPRank})
			}
		}
		return ranks
	}
	tp := p.TPSize
	if p.DCPSize == 1 {
		tp /= c.replicas(g)
	}
	ranks := make([]Rank, 0, p.PCPSize*tp*p.PPSize)
	for pcp := range p.PCPSize {
		for t := range tp {
			for pp := range p.PPSize {
				ranks = append(ranks, Rank{TP: t, PP: pp, PCP: pcp, DCP: t % p.DCPSize})
			}
		}
	}
	return ranks
}

// replicas returns the number of tensor-parallel ranks that hold equal blocks of group g,
// at revision 2026-08-17 without decode-context parallelism.
func (c *Coordinator) replicas(g int) int {
	switch kind := c.pool.Groups[g].Kind; {
	case kind == Mamba:
		return 1
	case kind.mla():
		return c.pool.TPSize
	}
	return max(1, c.pool.TPSize/c.pool.NumKVHead)
}
