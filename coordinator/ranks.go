package coordinator

// Rank is a place that a block is stored in: a worker's tensor, pipeline,
// prefill-context and decode-context parallel rank.
type Rank struct {
	TP, PP, PCP, DCP int
}

// Ranks returns where a block of group g must be stored to count as present, in
// the order of the reference's keys. The caller must not change the slice.
func (c *Coordinator) Ranks(g int) []Rank { return c.groups[g].ranks }

// requiredRanks works out Ranks. At 2026-08-17 the namespaces are the group's
// own; before, they are the same for all groups, and the pcp and dcp ranks are
// those of the worker that asks.
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

// replicas is the number of tensor-parallel ranks that hold equal blocks of
// group g, at revision 2026-08-17 without decode-context parallelism.
func (c *Coordinator) replicas(g int) int {
	switch kind := c.pool.Groups[g].Kind; {
	case kind == Mamba:
		return 1
	case kind.mla():
		return c.pool.TPSize
	}
	return max(1, c.pool.TPSize/c.pool.NumKVHead)
}
