package index

// The order of eviction. Spans wait in two lists: cold ones, stored and not found
// since, and hot ones, found by a lookup or stored again. The oldest of the two
// goes, by the time of its last use; but a hot span counts as younger than it is,
// by a bonus. With no bonus this is exactly least recently used; with a large one,
// hot spans are protected from floods of prompts that nobody asks for again. Which
// is better depends on how much of the work fits, so the bonus is learnt: of what
// was evicted some hashes are remembered, and when one of them is stored again
// soon, the bonus grows if it was hot and shrinks if it was cold. Hot entries are
// evicted more rarely, so that their return weighs more, as in ARC (Megiddo and
// Modha, 2003).
type policy struct {
	clock uint32 // counts entries stored
	// bonus is in lifetimes: the time in which as many entries are stored as the
	// index holds.
	bonus   float64
	gone    [2]float64 // entries evicted lately, cold and hot
	ghosts  []ghost
	sampled uint64 // of so many hashes one is remembered, a power of two
	frozen  bool   // a dump is being loaded: nothing is learnt, and the Loader sets clock
}

// ghost remembers an evicted entry. The zero value is nobody's.
type ghost struct {
	mark uint32 // of its hash
	time uint32 // when it was evicted, shifted left by one; the lowest bit is set if it was hot
}

const (
	// maxGhosts bounds what is remembered, to 512 KiB; larger indexes remember a
	// part, which tells the same.
	maxGhosts  = 1 << 16
	ghostBytes = 8
	// learning is how far one return of a cold entry moves the bonus in an index of
	// one entry. On the conversation trace any step from 0.6 to 80 does better than
	// least recently used; the small ones are the steadier.
	learning = 2
	// leastBonus is the least that has an effect: below it is noise.
	leastBonus = 0.1
	// mostBonus keeps hot entries from staying for ever.
	mostBonus = 16
)

func which(hot bool) int {
	if hot {
		return 1
	}
	return 0
}

// ghostOf returns the place of a hash among the ghosts, nil if it is not one of
// the sample.
func (p *policy) ghostOf(h uint64) (g *ghost, mark uint32) {
	if len(p.ghosts) == 0 || (h>>16)&(p.sampled-1) != 0 {
		return nil, 0
	}
	return &p.ghosts[(h>>32)&uint64(len(p.ghosts)-1)], uint32(h) | 1
}

// evict notes that an entry was evicted, of so many that there are.
func (p *policy) evict(h uint64, hot bool, entries int64) {
	if p.frozen {
		return
	}
	if p.ghosts == nil {
		n := int64(1 << 8)
		for ; n < maxGhosts && n < 2*entries; n *= 2 {
		}
		p.ghosts, p.sampled = make([]ghost, n), 1
	}
	for 2*entries > int64(len(p.ghosts))*int64(p.sampled) { // it has grown
		p.sampled *= 2
	}
	if p.gone[which(hot)]++; p.gone[0]+p.gone[1] > 8*float64(entries) {
		p.gone[0] /= 2
		p.gone[1] /= 2
	}
	if g, mark := p.ghostOf(h); g != nil {
		*g = ghost{mark, p.clock<<1 | uint32(which(hot))}
	}
}

// store notes that a new entry was stored.
func (p *policy) store(h uint64, entries int64) {
	if p.frozen {
		return
	}
	p.clock++
	g, mark := p.ghostOf(h)
	if g == nil || g.mark != mark {
		return
	}
	hot, age := g.time&1 == 1, (p.clock<<1-g.time)>>1
	*g = ghost{}
	if int64(age) > entries {
		return
	}
	step := learning * float64(p.sampled) / float64(entries)
	if hot {
		p.bonus += step * p.gone[0] / p.gone[1]
	} else {
		p.bonus -= step
	}
	p.bonus = min(max(p.bonus, 0), mostBonus)
}

// coldFirst tells whether a cold span is to go before a hot one, by the times of
// their last uses.
func (p *policy) coldFirst(cold, hot uint32, entries int64) bool {
	bonus := p.bonus
	if bonus < leastBonus {
		bonus = 0
	}
	return float64(p.clock-cold)+bonus*float64(entries) >= float64(p.clock-hot)
}
