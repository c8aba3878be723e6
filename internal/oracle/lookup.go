package oracle

// Rank is the rank of a worker that stores a block, as keys name it.
type Rank struct{ TP, PP, PCP int }

// Ranks returns the ranks that must store a block of group g.
func (p *Pool) Ranks(g int) []Rank {
	tp, pp := max(1, p.TPSize), max(1, p.PPSize)
	heads := p.NumKVHead
	if heads == 0 {
		heads = tp
	}
	if p.Revision != Rev20260817 {
		return ranks([]int{p.PCPRank}, min(tp, heads), pp)
	}
	var pcp []int
	for r := range max(1, p.PCPSize) {
		pcp = append(pcp, r)
	}
	if p.DCPSize <= 1 {
		switch kind := p.Groups[g].Kind; kind {
		case "mamba":
		case "mla_attention", "sliding_window_mla":
			tp = 1
		default:
			tp /= max(1, tp/heads)
		}
	}
	return ranks(pcp, tp, pp)
}

// ranks returns all ranks of the given pcp ranks, tps tensor and pps pipeline ranks.
func ranks(pcps []int, tps, pps int) []Rank {
	var list []Rank
	for _, pcp := range pcps {
		for tp := range tps {
			for pp := range pps {
				list = append(list, Rank{TP: tp, PP: pp, PCP: pcp})
			}
		}
	}
	return list
}

// Lookup returns the worker's answer to a lookup of numTokens tokens with hashes: the hit in
// tokens, and the class of the error. has reports whether the store has the block of a hash,
// for a group and a rank.
func (p *Pool) Lookup(numTokens int, hashes []string, has func(group int, rank Rank, hash string) bool) (hit int, class string) {
	if len(hashes) == 0 || numTokens <= 0 {
		return 0, ""
	}
	tokens := numTokens
	if p.Revision == Rev20260817 {
		tokens = numTokens / p.alignment() * p.alignment()
	}
	if tokens == 0 {
		return 0, ""
	}
	if tokens%p.alignment() != 0 {
		return 0, assertionError
	}
	requested, class := p.requestedHashes(tokens, len(hashes))
	if class != "" {
		return 0, class
	}
	exists, queried := p.queryStore(requested, hashes, has)
	if !queried {
		return 0, ""
	}
	stored := func(g, raw int) bool { return exists[g][hashes[raw]] }
	hit, _, class = p.FindHit(stored, len(hashes), tokens, true)
	if class != "" || p.Revision != Rev20260817 || hit < numTokens {
		return hit, class
	}
	shorter := (numTokens - 1) / p.alignment() * p.alignment()
	if shorter == 0 {
		return 0, ""
	}
	hit, _, class = p.FindHit(stored, len(hashes), shorter, true)
	return hit, class
}

// requestedHashes returns the raw hashes of each group that a lookup asks the store for.
func (p *Pool) requestedHashes(tokens, hashes int) (requested [][]int, class string) {
	requested = make([][]int, len(p.Groups))
	if p.fineGrained() {
		for g := range requested {
			for raw := 0; raw < hashes && raw < tokens/p.HashBlockSize; raw++ {
				requested[g] = append(requested[g], raw)
			}
		}
		return requested, ""
	}
	masks, class := p.LookupMask(tokens)
	if class != "" {
		return nil, class
	}
	for g, group := range p.Groups {
		k := p.stride(group.BlockSize)
		for c := 0; c*group.BlockSize < tokens && c < hashes/k; c++ {
			if masks[g].All || masks[g].Entries[c] {
				requested[g] = append(requested[g], c*k+k-1)
			}
		}
	}
	return requested, ""
}

// queryStore returns for each group which hashes the store has on every rank. queried is false
// if there was nothing to ask for.
func (p *Pool) queryStore(requested [][]int, hashes []string, has func(group int, rank Rank, hash string) bool) (exists []map[string]bool, queried bool) {
	exists = make([]map[string]bool, len(p.Groups))
	for g, list := range requested {
		exists[g] = map[string]bool{}
		counts := map[string]int{}
		needed := len(p.Ranks(g))
		for _, raw := range list {
			queried = true
			present := 0
			for _, rank := range p.Ranks(g) {
				if has(g, rank, hashes[raw]) {
					present++
				}
			}
			if p.Revision == Rev20260817 {
				exists[g][hashes[raw]] = exists[g][hashes[raw]] || present == needed
				continue
			}
			counts[hashes[raw]] += present // over equal hashes too
			exists[g][hashes[raw]] = counts[hashes[raw]] >= max(1, needed)
		}
	}
	return exists, queried
}
