package oracle

import (
	"fmt"
	"math/rand/v2"
	"slices"
)

// RandomPool returns a pool that the reference accepts, of any release with lookups. It has more eagle
// groups, mamba groups and unequal specs than real engines, because the rules interact
// there.
func RandomPool(r *rand.Rand) Pool {
	hash := []int{1, 4, 16}[r.IntN(3)]
	p := Pool{
		Release: releases[r.IntN(len(releases))], HashBlockSize: hash, UseEagle: r.IntN(2) == 0,
		TPSize: 1, PPSize: 1, PCPSize: 1, DCPSize: 1,
	}
	eagle := r.IntN(5) // of five groups, on average
	for range 1 + r.IntN(maxSpecs) {
		p.Groups = append(p.Groups, p.randomMember(r, eagle))
	}
	factor := 1
	if r.IntN(3) == 0 {
		factor = 1 + r.IntN(3)
	}
	switch r.IntN(6) {
	case 0:
		p.makeRepeatedLookahead(r)
		factor = 1
	case 1:
		p.makeFineGrained(r)
		factor = 1
	default:
		p.addDropped(r)
	}
	p.setSchedulerBlock(factor)
	p.setRanks(r)
	if p.since("0.27.0") && r.IntN(40) == 0 {
		p.makeCapacityOnly()
	}
	if p.since("0.32.0") && p.CacheHitAlignmentTokens == 0 {
		p.CacheHitAlignmentTokens = []int{0, p.HashBlockSize, p.SchedulerBlockSize}[r.IntN(3)]
	}
	return p
}

// randomMember returns another group for the pool: of a new spec, or of one that it has.
func (p *Pool) randomMember(r *rand.Rand, eagle int) Group {
	g := p.randomGroup(r)
	if n := len(p.Groups); n > 0 && r.IntN(6) == 0 {
		g = p.Groups[r.IntN(n)]
		if p.since("0.33.0") && g.window() && g.SlidingWindow > 1 { // an equal spec in other words
			g.ExtraRetainedTokens += g.SlidingWindow - 1
			g.SlidingWindow = 1
		}
	}
	g.IsEagleGroup = r.IntN(5) < eagle
	return g
}

// setSchedulerBlock sets the scheduler block size to the smallest one, times a factor.
func (p *Pool) setSchedulerBlock(factor int) {
	p.SchedulerBlockSize = p.HashBlockSize
	for _, g := range p.StoreGroups() {
		p.SchedulerBlockSize = lcm(p.SchedulerBlockSize, p.Groups[g].BlockSize)
	}
	p.SchedulerBlockSize *= factor
}

// setRanks gives some pools several ranks. Engines with several groups refuse pcp, and before
// 0.29.0 also dcp.
func (p *Pool) setRanks(r *rand.Rand) {
	if r.IntN(3) > 0 {
		return
	}
	p.TPSize, p.PPSize, p.NumKVHead = 1+r.IntN(4), 1+r.IntN(2), 1+r.IntN(4)
	if !p.since("0.25.0") {
		return
	}
	single := len(p.StoreGroups()) == 1
	if single && r.IntN(2) == 0 {
		p.PCPSize = 1 + r.IntN(2)
	}
	if (single || p.since("0.29.0")) && r.IntN(2) == 0 {
		p.DCPSize = p.TPSize
	}
}

// makeCapacityOnly turns lookups off. The groups do not matter then: the pool gets one.
func (p *Pool) makeCapacityOnly() {
	p.CapacityOnly = true
	p.Groups = []Group{{Kind: "full_attention", BlockSize: p.HashBlockSize}}
	p.setSchedulerBlock(1)
}

// addDropped adds groups that take no part in lookups, if the release has such: scratch
// groups and groups that are not transferred. Their sizes fit nothing.
func (p *Pool) addDropped(r *rand.Rand) {
	if !p.since("0.29.0") || r.IntN(3) > 0 {
		return
	}
	for range 1 + r.IntN(2) {
		g := p.randomGroup(r)
		g.BlockSize += r.IntN(2)
		g.IsEagleGroup = r.IntN(4) == 0
		switch kind := r.IntN(3); {
		case !p.since("0.30.0") || kind == 0:
			disabled := false
			g.EnableKVTransfer = &disabled
		case kind == 1:
			kinds := []string{"circular_buffer", "hisparse_hot", "hisparse_resident"}
			if !p.since("0.32.0") {
				kinds = append(kinds, "kpool_tail")
			}
			g = Group{Kind: kinds[r.IntN(len(kinds))], BlockSize: g.BlockSize, IsEagleGroup: g.IsEagleGroup}
		default:
			g = Group{
				Kind: "sliding_window_mla", BlockSize: g.BlockSize, IsEagleGroup: g.IsEagleGroup,
				SlidingWindow: 1 + r.IntN(3*g.BlockSize), BoundedReplay: true,
			}
		}
		p.Groups = slices.Insert(p.Groups, r.IntN(len(p.Groups)+1), g)
	}
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

// randomGroup returns a group of a kind that the release has and that takes part in lookups.
func (p *Pool) randomGroup(r *rand.Rand) Group {
	g := Group{BlockSize: p.HashBlockSize, Variant: r.IntN(4), Uniform: r.IntN(8) == 0}
	if r.IntN(3) == 0 {
		g.BlockSize *= 1 + r.IntN(4)
	}
	switch kind := r.IntN(40); {
	case kind < 10:
		p.setFull(r, &g)
	case kind < 26:
		g.Kind, g.MambaCacheMode = "mamba", []string{"", "none", "align", "all"}[r.IntN(4)]
	case kind < 38:
		p.setWindow(r, &g)
	case kind == 38 && p.Release == "0.29.0":
		g.Kind = "circular_buffer"
	default:
		g.Kind, g.AttentionChunkSize = "chunked_local_attention", g.BlockSize*(1+r.IntN(3))
	}
	return g
}

// setFull makes g a group of the full attention family.
func (p *Pool) setFull(r *rand.Rand, g *Group) {
	kinds := []string{"full_attention", "full_attention", "full_attention", "mla_attention", "sink_full_attention", "hidden_state"}
	if p.since("0.25.0") {
		kinds = append(kinds, "rswa")
	}
	g.Kind = kinds[r.IntN(len(kinds))]
	if g.Kind == "rswa" {
		g.RSWAWindow = g.BlockSize * (1 + r.IntN(2))
	}
}

// setWindow makes g a group with a sliding window.
func (p *Pool) setWindow(r *rand.Rand, g *Group) {
	g.Kind = []string{"sliding_window", "sliding_window", "sliding_window_mla"}[r.IntN(3)]
	g.SlidingWindow = 1 + r.IntN(5*g.BlockSize)
	if p.since("0.28.0") && r.IntN(3) == 0 {
		g.ExtraRetainedTokens = r.IntN(3 * g.BlockSize)
	}
}

// maxSpecs bounds the groups of a random pool before makeRepeatedLookahead, addDropped and
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
	n := maxSpecs - 1 + r.IntN(3)
	noEagle := 1 + r.IntN(n)
	for i := 1; i <= n; i++ {
		p.Groups = append(p.Groups, Group{Kind: "mamba", BlockSize: p.HashBlockSize, Variant: i, IsEagleGroup: i != noEagle})
	}
}

// makeFineGrained gives the pool groups whose hits end inside chunks: full attention with
// unequal block sizes, and a mamba group with blocks larger than hash blocks.
func (p *Pool) makeFineGrained(r *rand.Rand) {
	first := slices.Index(releases, "0.27.0")
	p.Release = releases[first+r.IntN(len(releases)-first)]
	p.Groups = slices.DeleteFunc(p.Groups, func(g Group) bool { return g.Kind == "circular_buffer" })
	p.Groups = p.Groups[:r.IntN(min(2, len(p.Groups))+1)]
	if !p.since("0.28.0") {
		for g := range p.Groups {
			p.Groups[g].ExtraRetainedTokens = 0
		}
	}
	for range 2 + r.IntN(2) {
		p.Groups = append(p.Groups, Group{Kind: "full_attention", BlockSize: p.HashBlockSize * (1 + r.IntN(4)), Variant: r.IntN(2)})
	}
	k := 2 + r.IntN(3)
	p.Groups = append(p.Groups, Group{Kind: "mamba", BlockSize: p.HashBlockSize * k, MambaCacheMode: "align", Variant: 2})
	r.Shuffle(len(p.Groups), func(i, j int) { p.Groups[i], p.Groups[j] = p.Groups[j], p.Groups[i] })
	if p.since("0.32.0") {
		p.CacheHitAlignmentTokens = p.HashBlockSize
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
		if p.dropped(g) {
			continue // nothing is stored
		}
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
