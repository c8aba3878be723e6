package coordinator

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/hitline/hitline/internal/conformance"
	"github.com/hitline/hitline/netproto"
)

// The recorded worker lookups of releases. The package lookup reports them too, over its
// service.
func TestReleaseWorkerLookup(t *testing.T) {
	for class, revision := range releaseClasses {
		t.Run(class, func(t *testing.T) {
			var recorded struct{ Cases []conformance.WorkerCase }
			conformance.Load(t, "releases/"+class+"/worker_lookup.json", &recorded)
			for i := range recorded.Cases {
				cs := &recorded.Cases[i]
				if v := judgeReleaseWorker(cs, revision); v != (conformance.Verdict{}) {
					t.Errorf("%s: %s", cs.ID, v.Differs)
				}
			}
		})
	}
}

// releasePool returns the pool of a recorded lookup.
func releasePool(cs *conformance.WorkerCase, revision Revision) (pool Pool, err error) {
	if err := json.Unmarshal(cs.Raw, &pool); err != nil {
		return pool, err
	}
	pool.Revision = revision
	x := &cs.ExtraConfig
	if x.StoreTPSize != nil && string(x.StoreTPSize) != "null" {
		pool.StoreTPSize = new(wholeNumber(x.StoreTPSize))
	}
	pool.EnableStoreTPLCM = x.EnableStoreTPLCM == true
	for _, size := range x.PrefillTPSizes {
		pool.PrefillTPSizes = append(pool.PrefillTPSizes, wholeNumber(size))
	}
	text, _ := x.EnableCrossLayersBlocks.(string)
	pool.EnableCrossLayersBlocks = x.EnableCrossLayersBlocks == true || strings.EqualFold(text, "true")
	return pool, nil
}

// wholeNumber returns the value of an integer literal, 0 of anything else: Python takes 2.0
// for no integer.
func wholeNumber(text json.RawMessage) int {
	n, err := strconv.Atoi(string(text))
	if err != nil {
		return 0
	}
	return n
}

func judgeReleaseWorker(cs *conformance.WorkerCase, revision Revision) conformance.Verdict {
	pool, err := releasePool(cs, revision)
	if err != nil {
		return conformance.Differs("pool: %v", err)
	}
	c, err := New(pool)
	if err != nil || cs.Expect.Stage == "construct" {
		if errorClass(err) != cs.Expect.Error || cs.Expect.Stage != "construct" {
			return conformance.Differs("error %q (%v), want %q at %q", errorClass(err), err, cs.Expect.Error, cs.Expect.Stage)
		}
		return conformance.Verdict{}
	}
	store, err := cs.NewReleaseStore(prefixesOf(c))
	if err != nil {
		return conformance.Differs("%v", err)
	}
	if c.FineGrained() != cs.Expect.FineGrained {
		return conformance.Differs("fine-grained %v, want %v", c.FineGrained(), cs.Expect.FineGrained)
	}
	hit, err := c.Lookup(cs.TokenLen, netproto.NewHashes(cs.Blob(), cs.HashLen), ExistsFunc(store.Exists))
	if v := cs.Judge(store, hit.Tokens, err, errorClass(err)); v != (conformance.Verdict{}) {
		return v
	}
	return judgeBoundaries(hit, cs.Expect.TailKeyBoundaries)
}

func judgeBoundaries(hit Hit, want [][2]int64) conformance.Verdict {
	got := [][2]int64{}
	for _, b := range hit.TailBoundaries {
		got = append(got, [2]int64{int64(b.Group), b.Tokens})
	}
	if !slices.Equal(got, want) {
		return conformance.Differs("boundaries %v, want %v", got, want)
	}
	return conformance.Verdict{}
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
