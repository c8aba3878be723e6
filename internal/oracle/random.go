package oracle

import (
	"fmt"
	"math/rand/v2"
)

// RandomPool returns a pool that the reference accepts, of any revision. It has more eagle
// groups, mamba groups and unequal specs than real engines, because the rules interact
// there.
func RandomPool(r *rand.Rand) Pool {
	hash := []int{1, 4, 16}[r.IntN(3)]
	p := Pool{
		Revision:      []string{Rev20260604, Rev20260620, Rev20260620, Rev20260620, Rev20260817, Rev20260817}[r.IntN(6)],
		HashBlockSize: hash, SchedulerBlockSize: hash, UseEagle: r.IntN(2) == 0,
		TPSize: 1, PPSize: 1, PCPSize: 1, DCPSize: 1,
	}
	if r.IntN(4) == 0 {
		p.TPSize, p.PPSize, p.NumKVHead = 1+r.IntN(3), 1+r.IntN(2), 1+r.IntN(3)
	}
	eagle := r.IntN(5) // of five groups, on average
	for range 1 + r.IntN(maxSpecs) {
		if n := len(p.Groups); n > 0 && r.IntN(6) == 0 { // another member of an attention group
			member := p.Groups[r.IntN(n)]
			member.IsEagleGroup = r.IntN(5) < eagle
			p.Groups = append(p.Groups, member)
			continue
		}
		g := randomGroup(r, hash)
		g.IsEagleGroup = r.IntN(5) < eagle
		p.Groups = append(p.Groups, g)
		p.SchedulerBlockSize = lcm(p.SchedulerBlockSize, g.BlockSize)
	}
	if r.IntN(3) == 0 {
		p.SchedulerBlockSize *= 1 + r.IntN(3)
	}
	switch r.IntN(6) {
	case 0:
		p.makeRepeatedLookahead(r)
	case 1:
		p.makeFineGrained(r)
	}
	return p
}

// maxHashes bounds RandomChainLen.
const maxHashes = 40

// RandomChainLen returns a number of hashes for a chain that is looked up in p, at most 40.
func RandomChainLen(r *rand.Rand, p *Pool) int {
	switch {
	case p.hasRepeatedLookahead():
		return 6 + r.IntN(4)
	case r.IntN(3) == 0:
		return r.IntN(9)
	}
	return r.IntN(maxHashes + 1)
}

// randomGroup returns a group for a hash block size.
func randomGroup(r *rand.Rand, hash int) Group {
	g := Group{BlockSize: hash, Variant: r.IntN(4)}
	if r.IntN(3) == 0 {
		g.BlockSize *= 1 + r.IntN(4)
	}
	switch kind := r.IntN(20); {
	case kind < 5:
		g.Kind = []string{"full_attention", "full_attention", "full_attention", "mla_attention", "sink_full_attention"}[r.IntN(5)]
	case kind < 13:
		g.Kind, g.MambaCacheMode = "mamba", []string{"", "none", "align", "all"}[r.IntN(4)]
	case kind < 19:
		g.Kind = []string{"sliding_window", "sliding_window", "sliding_window_mla"}[r.IntN(3)]
		g.SlidingWindow = 1 + r.IntN(5*g.BlockSize)
	default:
		g.Kind, g.AttentionChunkSize = "chunked_local_attention", g.BlockSize*(1+r.IntN(3))
	}
	return g
}

// maxSpecs bounds the groups of a random pool before makeRepeatedLookahead and
// makeFineGrained.
const maxSpecs = 7

// hasRepeatedLookahead reports whether makeRepeatedLookahead has changed the pool.
func (p *Pool) hasRepeatedLookahead() bool {
	return len(p.Groups) >= maxSpecs && p.Groups[0].full() && p.Groups[1].Kind == "mamba" && p.Groups[maxSpecs-1].Variant == maxSpecs-1
}

// makeRepeatedLookahead gives the pool groups whose eagle mamba groups look ahead again and
// again: a full group, and mamba groups of which all but one are eagle groups.
func (p *Pool) makeRepeatedLookahead(r *rand.Rand) {
	p.UseEagle = true
	p.Groups = []Group{{Kind: "full_attention", BlockSize: p.HashBlockSize}}
	p.SchedulerBlockSize = p.HashBlockSize
	n := maxSpecs - 1 + r.IntN(3)
	noEagle := 1 + r.IntN(n)
	for i := 1; i <= n; i++ {
		p.Groups = append(p.Groups, Group{Kind: "mamba", BlockSize: p.HashBlockSize, Variant: i, IsEagleGroup: i != noEagle})
	}
}

// makeFineGrained gives the pool groups whose hits end inside chunks: full attention with
// unequal block sizes, and a mamba group with blocks larger than hash blocks.
func (p *Pool) makeFineGrained(r *rand.Rand) {
	p.Revision = Rev20260817
	p.Groups = p.Groups[:r.IntN(min(2, len(p.Groups))+1)]
	for range 2 + r.IntN(2) {
		p.Groups = append(p.Groups, Group{Kind: "full_attention", BlockSize: p.HashBlockSize * (1 + r.IntN(4)), Variant: r.IntN(2)})
	}
	k := 2 + r.IntN(3)
	p.Groups = append(p.Groups, Group{Kind: "mamba", BlockSize: p.HashBlockSize * k, MambaCacheMode: "align", Variant: 2})
	r.Shuffle(len(p.Groups), func(i, j int) { p.Groups[i], p.Groups[j] = p.Groups[j], p.Groups[i] })
	p.SchedulerBlockSize = p.HashBlockSize
	for _, g := range p.Groups {
		p.SchedulerBlockSize = lcm(p.SchedulerBlockSize, g.BlockSize)
	}
}

// lcm returns the least common multiple.
func lcm(a, b int) int {
	x, y := a, b
	for y != 0 {
		x, y = y, x%y
	}
	return a / x * b
}

// Content tells which blocks of one chain a store has, by group, rank (an index of Ranks) and
// raw hash.
type Content [][][]bool

// RandomContent returns content for a chain of that many hashes. Groups have prefixes, single
// blocks, or most blocks. Ranks mostly have the same.
func RandomContent(r *rand.Rand, p *Pool, hashes int) Content {
	content := make(Content, len(p.Groups))
	for g, group := range p.Groups {
		k := p.stride(group.BlockSize)
		list := make([]bool, hashes)
		switch {
		case !p.hasRepeatedLookahead():
			fillPresence(r, list, k, p.fineGrained())
		case g > 0: // most blocks, and few of the full group, make the groups look ahead again
			for i := range list {
				list[i] = r.IntN(10) < 7
			}
		case r.IntN(2) == 0:
			fillPresence(r, list[:min(len(list), 3)], k, false)
		}
		for range p.Ranks(g) {
			own := append([]bool(nil), list...)
			if r.IntN(4) == 0 {
				for range 1 + r.IntN(3) {
					if hashes > 0 {
						own[r.IntN(hashes)] = false
					}
				}
			}
			content[g] = append(content[g], own)
		}
	}
	return content
}

// fillPresence sets the entries of list that a group has: keys of chunks, and with raw also
// other raw hashes.
func fillPresence(r *rand.Rand, list []bool, k int, raw bool) {
	pattern, density, end := r.IntN(5), 0.5+0.4*r.Float64(), r.IntN(len(list)+1)
	for i := range list {
		present := false
		switch pattern {
		case 0:
			present = true
		case 1:
			present = i < end
		case 2:
			present = r.Float64() < density
		case 3:
			present = r.Float64() < 0.2
		case 4:
			present = i < end || r.Float64() < density/2
		}
		list[i] = present && ((i+1)%k == 0 || raw && r.IntN(3) == 0)
	}
}

// Has returns the argument has of Lookup. index has the position of each hash in the chain.
func (c Content) Has(p *Pool, index map[string]int) func(group int, rank Rank, hash string) bool {
	return func(group int, rank Rank, hash string) bool {
		i, ok := index[hash]
		if !ok {
			panic(fmt.Sprintf("oracle: hash %x is not of the chain", hash))
		}
		for n, r := range p.Ranks(group) {
			if r == rank {
				return c[group][n][i]
			}
		}
		return false
	}
}
