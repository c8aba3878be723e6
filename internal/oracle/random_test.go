package oracle

import (
	"math/rand/v2"
	"strconv"
	"testing"
)

// TestRandomPools checks that random pools are valid and have what each revision can express.
func TestRandomPools(t *testing.T) {
	seen := map[string]map[string]int{}
	for _, revision := range revisions {
		seen[revision] = map[string]int{}
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 15_000 {
		p := RandomPool(r)
		if class := p.Check(); class != "" {
			t.Fatalf("%s: %+v", class, p)
		}
		for _, feature := range p.features() {
			seen[p.Revision][feature]++
		}
		seen[p.Revision][p.randomLookup(r)]++
	}
	for feature, first := range map[string]string{
		"hidden_state": Rev20260604, "uniform": Rev20260604, "tp": Rev20260604, "hit": Rev20260620,
		"rswa": Rev0251, "pcp": Rev0251, "dcp": Rev0251,
		"capacity": Rev20260817, "fine-grained": Rev20260817, "extra": Rev20260817,
		"untransferred": Rev0290, "later boundary": Rev0290,
		"scratch": Rev0300, "bounded": Rev0300, "namespace": Rev0300, "sharded": Rev0300, "fine-grained window": Rev0300,
	} {
		p := Pool{}
		for _, p.Revision = range revisions {
			if n := seen[p.Revision][feature]; p.since(first) && n < 5 {
				t.Errorf("%s: only %d pools with %s", p.Revision, n, feature)
			} else if !p.since(first) && n > 0 {
				t.Errorf("%s: %d pools with %s", p.Revision, n, feature)
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
		add("fine-grained window", p.since(Rev0300) && p.fineGrained() && g.window() && g.BlockSize > p.HashBlockSize)
	}
	add("tp", p.TPSize > 1)
	add("pcp", p.PCPSize > 1)
	add("dcp", p.DCPSize > 1)
	add("capacity", p.CapacityOnly)
	add("fine-grained", p.fineGrained())
	add("namespace", p.namespaced())
	add("sharded", p.sharded())
	return list
}

// randomLookup looks a random chain up and returns what came out.
func (p *Pool) randomLookup(r *rand.Rand) string {
	if p.Revision == Rev20260604 {
		return "no lookup"
	}
	var hashes []string
	index := map[string]int{}
	for i := range RandomChainLen(r, p) {
		hashes = append(hashes, strconv.Itoa(i))
		index[hashes[i]] = i
	}
	content := RandomContent(r, p, len(hashes))
	tokens := len(hashes) * p.HashBlockSize / p.SchedulerBlockSize * p.SchedulerBlockSize
	hit, tails, class := p.LookupTails(tokens, hashes, content.Has(p, index))
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
