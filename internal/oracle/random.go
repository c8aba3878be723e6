package oracle

import (
	"fmt"
	"math/rand/v2"
)

// RandomPool returns a pool that the reference accepts, of any revision. Engines have
// few eagle and mamba groups and few unequal specs; these pools have many, as the rules
// meet themselves there.
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
	eagle := r.IntN(5) // of five groups
	for range 1 + r.IntN(mostSpecs) {
		if n := len(p.Groups); n > 0 && r.IntN(6) == 0 { // a twin
			twin := p.Groups[r.IntN(n)]
			twin.IsEagleGroup = r.IntN(5) < eagle
			p.Groups = append(p.Groups, twin)
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
		p.makeGrowing(r)
	case 1:
		p.makeFine(r)
	}
	return p
}

// mostHashes is how long a chain of RandomHashes is at most.
const mostHashes = 40

// RandomHashes returns of how many hashes a chain should be that is looked up in a pool.
func RandomHashes(r *rand.Rand, p *Pool) int {
	switch {
	case p.growing():
		return 6 + r.IntN(4)
	case r.IntN(3) == 0:
		return r.IntN(9)
	}
	return r.IntN(mostHashes + 1)
}

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

// mostSpecs is how many unequal specs other random pools have at most.
const mostSpecs = 7

// growing tells whether makeGrowing has made the pool.
func (p *Pool) growing() bool {
	return len(p.Groups) >= mostSpecs && p.Groups[0].full() && p.Groups[1].Kind == "mamba" && p.Groups[mostSpecs-1].Variant == mostSpecs-1
}

// makeGrowing makes the pool one whose eagle mamba groups peek again and again: a full
// group, and mamba groups of which one is no eagle group.
func (p *Pool) makeGrowing(r *rand.Rand) {
	p.UseEagle = true
	p.Groups = []Group{{Kind: "full_attention", BlockSize: p.HashBlockSize}}
	p.SchedulerBlockSize = p.HashBlockSize
	n := mostSpecs - 1 + r.IntN(3)
	calm := 1 + r.IntN(n)
	for i := 1; i <= n; i++ {
		p.Groups = append(p.Groups, Group{Kind: "mamba", BlockSize: p.HashBlockSize, Variant: i, IsEagleGroup: i != calm})
	}
}

// makeFine makes the pool one whose hits end inside chunks: full attention in
// blocks of unequal sizes, and a mamba group whose blocks are larger than hashes.
func (p *Pool) makeFine(r *rand.Rand) {
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

func lcm(a, b int) int {
	x, y := a, b
	for y != 0 {
		x, y = y, x%y
	}
	return a / x * b
}

// Content is what a store holds of one chain of hashes: by group, rank (an index of
// Ranks) and raw hash.
type Content [][][]bool

// RandomContent returns content for a chain of so many hashes. Groups hold prefixes,
// single blocks, or most of all blocks; ranks mostly hold the same.
func RandomContent(r *rand.Rand, p *Pool, hashes int) Content {
	content := make(Content, len(p.Groups))
	for g, group := range p.Groups {
		k := p.stride(group.BlockSize)
		list := make([]bool, hashes)
		switch {
		case !p.growing():
			fill(r, list, k, p.fine())
		case g > 0: // what makes its groups peek again: most blocks, and few of the full group's
			for i := range list {
				list[i] = r.IntN(10) < 7
			}
		case r.IntN(2) == 0:
			fill(r, list[:min(len(list), 3)], k, false)
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

// fill chooses the hashes that a group holds: chunks, and raw hashes too where hits may
// end inside a chunk.
func fill(r *rand.Rand, list []bool, k int, raw bool) {
	pattern, density, end := r.IntN(5), 0.5+0.4*r.Float64(), r.IntN(len(list)+1)
	for i := range list {
		held := false
		switch pattern {
		case 0:
			held = true
		case 1:
			held = i < end
		case 2:
			held = r.Float64() < density
		case 3:
			held = r.Float64() < 0.2
		case 4:
			held = i < end || r.Float64() < density/2
		}
		list[i] = held && ((i+1)%k == 0 || raw && r.IntN(3) == 0)
	}
}

// Held returns whether the content has a hash of a chain, for Lookup. numbers gives the
// hash's place in the chain.
func (c Content) Held(p *Pool, numbers map[string]int) func(group int, at Rank, hash string) bool {
	return func(group int, at Rank, hash string) bool {
		i, ok := numbers[hash]
		if !ok {
			panic(fmt.Sprintf("oracle: hash %x is not of the chain", hash))
		}
		for n, rank := range p.Ranks(group) {
			if rank == at {
				return c[group][n][i]
			}
		}
		return false
	}
}
