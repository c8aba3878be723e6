package coordinator_test

import (
	"fmt"

	"github.com/hitline/hitline/coordinator"
)

// A pool of one full-attention group and one with a sliding window of 32 tokens, both in
// blocks of 16 tokens. Of a prompt of four blocks the store holds all blocks of the first
// group, and blocks 0, 1 and 3 of the second.
func ExampleCoordinator_FindHit() {
	c, err := coordinator.New(coordinator.Pool{Groups: []coordinator.Group{
		{Kind: coordinator.FullAttention, BlockSize: 16},
		{Kind: coordinator.SlidingWindow, BlockSize: 16, SlidingWindow: 32},
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	presence := coordinator.Presence{NumHashes: 4, Bits: [][]uint64{{0b1111}, {0b1011}}}
	var scratch coordinator.Scratch
	hit, err := c.FindHit(&presence, 64, true, &scratch)
	fmt.Println("hit", hit, err)
	for g := range c.NumGroups() {
		fmt.Println("group", g, entries(scratch.Mask(g)))
	}
	// Output:
	// hit 32 <nil>
	// group 0 [true true]
	// group 1 [true true]
}

// A pool of an engine of vLLM 0.33.0 whose hits may end inside a block of its full-attention
// group. The hit of 48 tokens ends inside its block 1, which is keyed by the hash of token 64.
func ExampleCoordinator_Lookup() {
	c, err := coordinator.New(coordinator.Pool{
		VLLM: "0.33.0", ModelName: "org/model", CacheHitAlignmentTokens: 16,
		Groups: []coordinator.Group{
			{Kind: coordinator.FullAttention, BlockSize: 32},
			{Kind: coordinator.Mamba, BlockSize: 32, MambaCacheMode: "align"},
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	hashes := coordinator.NewHashes([]byte("abcd"), 1)
	stored := map[string]bool{}
	for _, block := range []string{"@group:0@62", "@group:0@64", "@group:1@63"} { // hashes in hex
		stored["model@tp_rank:0@pcp0@dcp0@pp_rank:0"+block] = true
	}
	exists := func(keys []string) ([]int, error) {
		answers := make([]int, len(keys))
		for i, key := range keys {
			if stored[key] {
				answers[i] = 1
			}
		}
		return answers, nil
	}
	hit, err := c.Lookup(65, hashes, coordinator.ExistsFunc(exists))
	fmt.Println(hit.Tokens, hit.TailBoundaries, err)
	// Output: 48 [{0 64} {1 48}] <nil>
}

// The masks of 64 tokens: what an engine loads for a hit, and what it stores.
func ExampleCoordinator_StoreMask() {
	c, err := coordinator.New(coordinator.Pool{SchedulerBlockSize: 64, Groups: []coordinator.Group{
		{Kind: coordinator.FullAttention, BlockSize: 16},
		{Kind: coordinator.SlidingWindow, BlockSize: 16, SlidingWindow: 32},
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	load, err := c.LoadMask(64, 4)
	if err != nil {
		fmt.Println(err)
		return
	}
	store, err := c.StoreMask(64, 0, coordinator.NoPrompt)
	if err != nil {
		fmt.Println(err)
		return
	}
	for g := range c.NumGroups() {
		fmt.Println("group", g, "load", entries(load[g]), "store", entries(store[g]), "all worth storing:", store[g].IsAll())
	}
	// Output:
	// group 0 load [true true true true] store [true true true true] all worth storing: true
	// group 1 load [false false true true] store [false false true true] all worth storing: false
}

// entries returns the entries of a mask.
func entries(m coordinator.Mask) []bool {
	list := make([]bool, m.Len())
	for start, end := range m.Runs() {
		for i := start; i < end; i++ {
			list[i] = true
		}
	}
	return list
}
