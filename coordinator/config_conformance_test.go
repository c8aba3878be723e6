package coordinator

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/hitline/hitline/internal/conformance"
)

// TestConformanceConfig judges what vLLM's releases make of an engine's configuration: which
// groups are kept in the store, which have one spec, and on which ranks. Sizes are those that
// vLLM resolves. That the Python client describes them so is tested in clients/python.
func TestConformanceConfig(t *testing.T) {
	for _, folder := range conformance.Releases {
		conformance.Run(t, "releases/"+folder+"/config.json", func(c *conformance.ConfigCase) conformance.Verdict {
			releases := c.Releases()
			if releases == nil {
				releases = []string{folder}
			}
			var verdict conformance.Verdict
			for i, release := range releases {
				if v := judgeConfig(c, release); i == 0 || v.Skipped == "" && verdict.Differs == "" {
					verdict = v
				}
			}
			return verdict
		})
	}
}

func judgeConfig(c *conformance.ConfigCase, release string) conformance.Verdict {
	want := c.Expected(release)
	if want.Error != "" {
		return conformance.Skipped("the engine does not start: " + want.Error + " in " + want.Stage)
	}
	known, err := findRelease(release)
	if err != nil {
		return conformance.Differs("%v", err)
	}
	rules := &known.rules
	text, err := c.PoolJSON(want, rules.namespaces)
	pool := Pool{VLLM: release}
	if err = errors.Join(err, json.Unmarshal(text, &pool)); err != nil {
		return conformance.Differs("pool: %v", err)
	}
	if c.VLLM.UseMLA && rules.ranks != ranksOfGroup {
		pool.NumKVHead = 1
	}
	coordinator, err := New(pool)
	switch {
	case err != nil:
		return conformance.Differs("%v", err)
	case want.CapacityOnly:
		return conformance.Verdict{}
	}
	return want.Judge(configFacts(coordinator))
}

// configFacts returns what a coordinator makes of its pool.
func configFacts(c *Coordinator) *conformance.ConfigFacts {
	facts := &conformance.ConfigFacts{FineGrained: c.fineGrained, EagleGroups: []int{}, KeyPrefixes: prefixesOf(c)}
	for a := range c.attention {
		facts.AttentionGroups = append(facts.AttentionGroups, c.attention[a].members)
	}
	for g := range c.groups {
		facts.StoreGroups = append(facts.StoreGroups, c.PoolIndex(g))
		if c.groups[g].eagle || c.rules.mergedEagle && c.IsEagle(g) {
			facts.EagleGroups = append(facts.EagleGroups, g)
		}
		if c.rules.ranks == ranksOfGroup {
			replicas := 1
			if c.pool.DCPSize == 1 {
				replicas = c.replicas(g)
			}
			facts.TPReplicationFactors = append(facts.TPReplicationFactors, replicas)
		}
	}
	return facts
}
