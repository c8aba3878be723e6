package coordinator

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/hitline/hitline/internal/conformance"
)

func judgeReleaseWorker(cs *conformance.WorkerCase, release string) conformance.Verdict {
	var pool Pool
	text, err := cs.PoolJSON()
	if err = errors.Join(err, json.Unmarshal(text, &pool)); err != nil {
		return conformance.Differs("pool: %v", err)
	}
	c, err := newAt(pool, release)
	if err != nil || cs.Expect.Stage == "construct" {
		if errorClass(err) != cs.Expect.Error || cs.Expect.Stage != "construct" {
			return conformance.Differs("error %q (%v), want %q at %q", errorClass(err), err, cs.Expect.Error, cs.Expect.Stage)
		}
		return conformance.Verdict{}
	}
	if err := cs.SetPrefixes(prefixesOf(c)); err != nil {
		return conformance.Differs("%v", err)
	}
	store, err := cs.NewStore()
	if err != nil {
		return conformance.Differs("%v", err)
	}
	if c.FineGrained() != cs.Expect.FineGrained {
		return conformance.Differs("fine-grained %v, want %v", c.FineGrained(), cs.Expect.FineGrained)
	}
	hit, err := c.lookupAll(cs.TokenLen, NewHashes(cs.Blob(), cs.HashLen), ExistsFunc(store.Exists))
	return cs.Judge(store, hit.Tokens, pairsOf(hit.TailBoundaries), err, errorClass(err))
}

// pairsOf returns tail boundaries as they are recorded.
func pairsOf(tail []TailBoundary) (pairs [][2]int64) {
	for _, b := range tail {
		pairs = append(pairs, [2]int64{int64(b.Group), b.Tokens})
	}
	return pairs
}

// prefixesOf returns the key prefixes of each group without the last @.
func prefixesOf(c *Coordinator) [][]string {
	all := make([][]string, c.NumGroups())
	for g := range all {
		if c.pool.CapacityOnly {
			continue
		}
		for _, r := range c.Ranks(g) {
			all[g] = append(all[g], strings.TrimSuffix(c.KeyPrefix(g, r), "@"))
		}
	}
	return all
}

// The rules of the release before must not agree with vectors, or they show nothing.
func TestReleasesDiffer(t *testing.T) {
	skipUnderRace(t)
	for i, release := range conformance.Releases[1:] {
		before := conformance.Releases[i]
		var find struct{ Cases []findCase }
		conformance.Load(t, "releases/"+release+"/find_hit.json", &find)
		var masks struct{ Cases []maskCase }
		conformance.Load(t, "releases/"+release+"/masks.json", &masks)
		differ := 0
		count := func(v conformance.Verdict) {
			if v.Differs != "" {
				differ++
			}
		}
		for i := range find.Cases {
			count(judgeFind(&find.Cases[i], before))
		}
		for i := range masks.Cases {
			count(judgeMaskOp(&masks.Cases[i], before))
		}
		for _, cs := range conformance.LoadWorkers(t, "releases/"+release+"/worker_lookup.json") {
			count(judgeReleaseWorker(cs, before))
		}
		assert.Positive(t, differ, "%s by the rules before it", release)
	}
}

// skipUnderRace skips a test that compares many answers of one goroutine: it has nothing to race for, and takes
// minutes there.
func skipUnderRace(t *testing.T) {
	t.Helper()
	if raceEnabled {
		t.Skip("one goroutine that compares many answers: not under the race detector")
	}
}

// TestConformance judges the cases that scripts/reference has just drawn.
func TestConformance(t *testing.T) {
	if _, err := os.Stat(filepath.Join(os.Getenv("HITLINE_CONFORMANCE"), "lookup")); err != nil {
		t.Skip("the recorded cases have tests of their own")
	}
	conformance.RunKind(t, "lookup", func(raw *json.RawMessage) conformance.Verdict {
		var head struct{ Topic, Rules string }
		if err := json.Unmarshal(*raw, &head); err != nil {
			return conformance.Differs("unreadable: %v", err)
		}
		switch head.Topic {
		case "find_hit":
			return judgeRaw(*raw, head.Rules, judgeFind)
		case "masks":
			return judgeRaw(*raw, head.Rules, judgeMaskOp)
		}
		return judgeRaw(*raw, head.Rules, judgeReleaseWorker)
	})
}

func judgeRaw[C any](raw json.RawMessage, release string, judge func(c *C, release string) conformance.Verdict) conformance.Verdict {
	c := new(C)
	if err := json.Unmarshal(raw, c); err != nil {
		return conformance.Differs("unreadable: %v", err)
	}
	return judge(c, release)
}
