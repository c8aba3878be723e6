package coordinator

// Rank is the rank of a worker: tensor, pipeline, prefill-context and decode-context
// parallel. TP is the KV shard as in GroupRank.
type Rank struct {
	TP, PP, PCP, DCP int
}

// Ranks returns the ranks that must all hold a block of group g for it to be present, in
// the order of the reference's keys. The caller must not change the slice.
func (c *Coordinator) Ranks(g int) []Rank { return c.groups[g].ranks }

// StoreRank returns the rank of a store: that of the KV shard tp, with its decode-context
// rank.
func (c *Coordinator) StoreRank(tp, pp, pcp int) Rank {
	switch {
	case c.numShards > 0:
		return Rank{TP: tp, PP: pp, PCP: pcp}
	case c.rules.ranks == ranksOfWorker:
		return Rank{TP: tp, PP: pp, PCP: pcp, DCP: c.pool.DCPRank}
	}
	return Rank{TP: tp, PP: pp, PCP: pcp, DCP: tp % c.pool.DCPSize}
}

// requiredRanks computes Ranks of group g.
func (c *Coordinator) requiredRanks(g int) []Rank {
	p := &c.pool
	var ranks []Rank
	switch {
	case c.numShards > 0:
		for t := range c.numShards {
			for pp := range p.PPSize {
				ranks = append(ranks, Rank{TP: t, PP: pp})
			}
		}
	case c.rules.ranks == ranksOfWorker:
		for t := range min(p.TPSize, p.NumKVHead) {
			for pp := range p.PPSize {
				ranks = append(ranks, Rank{TP: t, PP: pp, PCP: p.PCPRank, DCP: p.DCPRank})
			}
		}
	default:
		for pcp := range p.PCPSize {
			for t := range c.numTPRanks(g) {
				for pp := range p.PPSize {
					ranks = append(ranks, Rank{TP: t, PP: pp, PCP: pcp, DCP: t % p.DCPSize})
				}
			}
		}
	}
	return ranks
}

// numTPRanks returns the number of tensor-parallel ranks that hold different blocks of
// group g.
func (c *Coordinator) numTPRanks(g int) int {
	switch {
	case c.pool.DCPSize > 1:
		return c.pool.TPSize
	case c.rules.ranks == ranksOfPool:
		return min(c.pool.TPSize, c.pool.NumKVHead)
	}
	return c.pool.TPSize / c.replicas(g)
}

// replicas returns the number of tensor-parallel ranks that hold equal blocks of group g,
// by ranksOfGroup without decode-context parallelism.
func (c *Coordinator) replicas(g int) int {
	switch kind := c.groups[g].Kind; {
	case kind == Mamba:
		return 1
	case kind.mla():
		return c.pool.TPSize
	}
	return max(1, c.pool.TPSize/c.pool.NumKVHead)
}
