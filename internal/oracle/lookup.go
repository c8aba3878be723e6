package oracle

import "slices"

// Boundary says under which hash the last block of a hit is stored: the one that ends after
// Tokens tokens. Group is a place in StoreGroups.
type Boundary struct{ Group, Tokens int }

// Lookup returns the worker's answer to a lookup of numTokens tokens with hashes: the hit in
// tokens, and the class of the error. has reports whether the store has the block of a hash,
// for a group and a rank.
func (p *Pool) Lookup(numTokens int, hashes []string, has func(group int, rank Rank, hash string) bool) (hit int, class string) {
	hit, _, class = p.LookupTails(0, numTokens, hashes, has)
	return hit, class
}

// LookupTails is Lookup with the tail boundaries of the reply. There are none before 0.29.0. The store
// also has every block that ends at or before token start, a multiple of L; has is not called for them.
func (p *Pool) LookupTails(start, numTokens int, hashes []string, has func(group int, rank Rank, hash string) bool) (hit int, tails []Boundary, class string) {
	if start < 0 || start%p.SchedulerBlockSize != 0 || start > max(0, numTokens) {
		return 0, nil, assertionError
	}
	tokens, queries, class := p.plan(numTokens, len(hashes))
	if class != "" || len(queries) == 0 {
		return 0, nil, class
	}
	present := map[query]bool{}
	for _, q := range queries {
		present[q] = q.raw*p.HashBlockSize < start || !slices.ContainsFunc(p.Ranks(q.group), func(rank Rank) bool {
			return !has(q.group, rank, hashes[q.raw])
		})
	}
	defer recoverException(&class)
	stored := func(g, raw int) bool { return present[query{g, raw}] }
	hit, _, class = p.FindHit(stored, len(hashes), tokens, true)
	if class == "" && p.since("0.27.0") && hit >= numTokens {
		tokens = (numTokens - 1) / p.alignment() * p.alignment()
		if tokens == 0 {
			return 0, nil, ""
		}
		hit, _, class = p.FindHit(stored, len(hashes), tokens, true)
	}
	if class != "" || hit == 0 || !p.since("0.29.0") {
		return hit, nil, class
	}
	return hit, p.tails(hit, len(hashes), stored), ""
}

// query is a block that a lookup asks for, on every rank of its group.
type query struct{ group, raw int }

// plan returns up to which token a lookup searches, and what it asks for.
func (p *Pool) plan(numTokens, hashes int) (tokens int, queries []query, class string) {
	if p.CapacityOnly || hashes == 0 || numTokens <= 0 {
		return 0, nil, ""
	}
	tokens = numTokens
	if p.since("0.27.0") {
		tokens = numTokens / p.alignment() * p.alignment()
	}
	masks, class := p.LookupMask(tokens)
	if class != "" {
		return 0, nil, class
	}
	for _, g := range p.StoreGroups() {
		block, mask := p.Groups[g].BlockSize, masks[g]
		if p.fineGrained() {
			block, mask = p.HashBlockSize, Mask{All: true}
		}
		k := p.stride(block)
		for c := 0; c*block < tokens && c < hashes/k; c++ {
			if mask.All || mask.Entries[c] {
				queries = append(queries, query{group: g, raw: c*k + k - 1})
			}
		}
	}
	return tokens, queries, ""
}

// tails returns the boundary of each group for a hit of some tokens. It raises AssertionError
// if a group has no key for its last block.
func (p *Pool) tails(hit, hashes int, stored func(group, raw int) bool) []Boundary {
	var list []Boundary
	for number, g := range p.StoreGroups() {
		list = append(list, Boundary{Group: number, Tokens: p.tail(g, hit, hashes, stored)})
	}
	return list
}

// tail returns the boundary of group g in tokens: the hit, or in fine-grained mode the end of
// the first stored hash after it in the same block.
func (p *Pool) tail(g, hit, hashes int, stored func(group, raw int) bool) int {
	last := hit/p.HashBlockSize - 1
	if last >= hashes {
		panic(exception(indexError))
	}
	if stored(g, last) {
		return hit
	}
	if p.fineGrained() {
		size := p.Groups[g].BlockSize
		end := min(ceilDiv(hit, size)*size/p.HashBlockSize, hashes)
		for raw := last + 1; raw < end; raw++ {
			if stored(g, raw) {
				return (raw + 1) * p.HashBlockSize
			}
		}
	}
	panic(exception(assertionError))
}
