package connector_test

import (
	"fmt"

	"github.com/hitline/hitline/connector"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/netproto"
)

// blockStore is a store of blocks: here the keys alone.
type blockStore map[string]bool

func key(group int, hash []byte) string { return fmt.Sprintf("%d/%s", group, hash) }

// A whole connector over a map: a prompt of five blocks is computed and stored, and a second
// request of it loads four. Then a block is evicted.
func Example() {
	rules, err := coordinator.New(coordinator.Pool{VLLM: "0.33.0", Groups: []coordinator.Group{
		{Kind: coordinator.FullAttention, BlockSize: 16},
		{Kind: coordinator.SlidingWindow, BlockSize: 16, SlidingWindow: 32},
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	store := blockStore{}
	scheduler := connector.NewScheduler(rules, connector.LookupFunc(
		func(numTokens int64, hashes netproto.Hashes) (coordinator.Hit, error) {
			return rules.LookupBlocks(numTokens, hashes, func(group int, hash []byte) bool { return store[key(group, hash)] })
		}))

	const prompt = 80                                // tokens
	hashes := netproto.NewHashes([]byte("abcde"), 1) // one for each 16 tokens
	match, _, _ := scheduler.Match("first", prompt, 0, hashes)
	fmt.Println("first request loads", match.Tokens, "tokens")
	for computed := int64(0); computed < prompt; computed += 40 { // two steps of prefill
		runs, err := connector.StoreRuns(rules, computed, computed+40, prompt)
		if err != nil {
			fmt.Println(err)
			return
		}
		for _, run := range runs {
			for _, hash := range run.Hashes() {
				store[key(run.Group, hashes.At(hash))] = true
			}
		}
	}

	match, _, _ = scheduler.Match("second", prompt, 16, hashes) // 16 tokens are in its own cache
	fmt.Println("second request loads", match.Tokens, "tokens:")
	runs, err := connector.LoadRuns(rules, match.Hit, 16, hashes.Len())
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, run := range runs {
		for chunk, hash := range run.Hashes() {
			fmt.Println(" group", run.Group, "chunk", chunk, "key", key(run.Group, hashes.At(hash)))
		}
	}

	delete(store, "1/d")
	match, _, _ = scheduler.Match("third", prompt, 16, hashes)
	fmt.Println("third request loads", match.Tokens, "tokens")
	// Output:
	// first request loads 0 tokens
	// second request loads 48 tokens:
	//  group 0 chunk 1 key 0/b
	//  group 0 chunk 2 key 0/c
	//  group 0 chunk 3 key 0/d
	//  group 1 chunk 2 key 1/c
	//  group 1 chunk 3 key 1/d
	// third request loads 32 tokens
}
