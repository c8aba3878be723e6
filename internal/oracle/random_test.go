package oracle

import (
	"math/rand/v2"
	"strconv"
	"testing"
)

// TestRandomPools checks that random pools are valid and have what each release can express.
func TestRandomPools(t *testing.T) {
	seen := map[string]map[string]int{}
	for _, release := range releases {
		seen[release] = map[string]int{}
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		p := RandomPool(r)
		if class := p.Check(); class != "" {
			t.Fatalf("%s: %+v", class, p)
		}
		for _, feature := range p.features() {
			seen[p.Release][feature]++
		}
		seen[p.Release][p.randomLookup(r)]++
	}
	for feature, first := range map[string]string{
		"hidden_state": "", "uniform": "", "tp": "", "hit": "",
		"rswa": "0.25.0", "pcp": "0.25.0", "dcp": "0.25.0",
		"capacity": "0.27.0", "fine-grained": "0.27.0", "extra": "0.28.0",
		"untransferred": "0.29.0", "later boundary": "0.29.0",
		"scratch": "0.30.0", "bounded": "0.30.0", "fine-grained window": "0.30.0",
	} {
		p := Pool{}
		for _, p.Release = range releases {
			if n := seen[p.Release][feature]; p.since(first) && n < 2 {
				t.Errorf("%s: only %d pools with %s", p.Release, n, feature)
			} else if !p.since(first) && n > 0 {
				t.Errorf("%s: %d pools with %s", p.Release, n, feature)
			}
		}
	}
}

// features returns what a pool has.
func (p *Pool) features() []string {
	var list []string
	add := func(feature string, has bool) {
		if has {
			list = append(list, feature)
		}
	}
	for i, g := range p.Groups {
		add(g.Kind, !p.dropped(i))
		add("uniform", g.Uniform)
		add("extra", g.ExtraRetainedTokens > 0)
		add("untransferred", p.untransferred(i))
		add("scratch", g.scratch() && p.dropped(i) && !p.untransferred(i))
		add("bounded", g.BoundedReplay)
		add("fine-grained window", p.since("0.30.0") && p.fineGrained() && g.window() && g.BlockSize > p.HashBlockSize)
	}
	add("tp", p.TPSize > 1)
	add("pcp", p.PCPSize > 1)
	add("dcp", p.DCPSize > 1)
	add("capacity", p.CapacityOnly)
	add("fine-grained", p.fineGrained())
	return list
}

// randomLookup looks a random chain up and returns what came out.
func (p *Pool) randomLookup(r *rand.Rand) string {
	var hashes []string
	index := map[string]int{}
	for i := range RandomChainLen(r, p) {
		hashes = append(hashes, strconv.Itoa(i))
		index[hashes[i]] = i
	}
	content := RandomContent(r, p, len(hashes))
	tokens := len(hashes) * p.HashBlockSize / p.SchedulerBlockSize * p.SchedulerBlockSize
	hit, tails, class := p.LookupTails(0, tokens, hashes, content.Has(p, index))
	for _, tail := range tails {
		if tail.Tokens > hit {
			return "later boundary"
		}
	}
	switch {
	case class != "":
		return class
	case hit > 0:
		return "hit"
	}
	return "miss"
}
