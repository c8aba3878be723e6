package oracle

// Rank is where a worker stores a block of a group, as the keys name it.
type Rank struct{ TP, PP, PCP int }

// Ranks returns the ranks that must hold a block of a group.
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

// Lookup returns what the worker answers to a lookup of so many tokens with these
// hashes, over a store that holds what held says, and the class of the error.
func (p *Pool) Lookup(numTokens int, hashes []string, held func(group int, at Rank, hash string) bool) (hit int, class string) {
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
		return 0, AssertionError
	}
	asked, class := p.asked(tokens, len(hashes))
	if class != "" {
		return 0, class
	}
	exists, any := p.exists(asked, hashes, held)
	if !any {
		return 0, ""
	}
	stored := func(g, raw int) bool { return exists[g][hashes[raw]] }
	hit, _, class = p.FindHit(stored, len(hashes), tokens, true)
	if class != "" || p.Revision != Rev20260817 || hit < numTokens {
		return hit, class
	}
	again := (numTokens - 1) / p.alignment() * p.alignment()
	if again == 0 {
		return 0, ""
	}
	hit, _, class = p.FindHit(stored, len(hashes), again, true)
	return hit, class
}

// asked returns the raw hashes of each group that the store is asked for.
func (p *Pool) asked(tokens, hashes int) (asked [][]int, class string) {
	asked = make([][]int, len(p.Groups))
	if p.fine() {
		for g := range asked {
			for raw := 0; raw < hashes && raw < tokens/p.HashBlockSize; raw++ {
				asked[g] = append(asked[g], raw)
			}
		}
		return asked, ""
	}
	masks, class := p.LookupMask(tokens)
	if class != "" {
		return nil, class
	}
	for g, group := range p.Groups {
		k := p.stride(group.BlockSize)
		for c := 0; c*group.BlockSize < tokens && c < hashes/k; c++ {
			if masks[g].All || masks[g].Entries[c] {
				asked[g] = append(asked[g], c*k+k-1)
			}
		}
	}
	return asked, ""
}

// exists returns the hashes of each group that the store holds on every rank, and
// whether the store was asked for anything.
func (p *Pool) exists(asked [][]int, hashes []string, held func(group int, at Rank, hash string) bool) (exists []map[string]bool, any bool) {
	exists = make([]map[string]bool, len(p.Groups))
	for g, list := range asked {
		exists[g] = map[string]bool{}
		counts := map[string]int{}
		need := len(p.Ranks(g))
		for _, raw := range list {
			any = true
			have := 0
			for _, at := range p.Ranks(g) {
				if held(g, at, hashes[raw]) {
					have++
				}
			}
			if p.Revision == Rev20260817 {
				exists[g][hashes[raw]] = exists[g][hashes[raw]] || have == need
				continue
			}
			counts[hashes[raw]] += have // over equal hashes too
			exists[g][hashes[raw]] = counts[hashes[raw]] >= max(1, need)
		}
	}
	return exists, any
}
