package fleet_test

import (
	"fmt"
	"log"
	"time"

	"github.com/hitline/hitline/blockhash"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/router/events"
	"github.com/hitline/hitline/router/fleet"
)

const blockSize = 16 // of the engines

// hashPrompt returns the hashes that engines of vLLM give the whole blocks of a prompt.
func hashPrompt(tokens []int64) coordinator.Hashes {
	hasher, err := blockhash.NewVLLM(blockhash.VLLMConfig{Release: "0.33.0", BlockSize: blockSize})
	if err != nil {
		log.Fatal(err)
	}
	joined, err := hasher.AppendHashes(nil, tokens, nil)
	if err != nil {
		log.Fatal(err)
	}
	return coordinator.NewHashes(joined, hasher.HashLen())
}

// leading returns the first n hashes.
func leading(hashes coordinator.Hashes, n int) coordinator.Hashes {
	return coordinator.NewHashes(hashes.Bytes()[:n*hashes.HashLen()], hashes.HashLen())
}

// addHolder adds an instance that has these blocks in a medium. Here no engine runs: of a real one
// events.NewFollower fills the holder, and calls what is called here.
func addHolder(f *fleet.Fleet, instance, medium string, hashes coordinator.Hashes) *fleet.Holder {
	h, err := f.Add(fleet.ID{Engine: instance})
	if err != nil {
		log.Fatal(err)
	}
	blocks := events.Blocks{Tier: events.Tier{Medium: medium}, Hashes: hashes, BlockSize: blockSize}
	if err := h.Store(&blocks, make([]bool, hashes.Len())); err != nil {
		log.Fatal(err)
	}
	h.SetStale(false)
	return h
}

// Two engines have different prefixes of a prompt of 100 tokens. A block that is in no engine yet is predicted by
// the router that sends the prompt there.
func Example() {
	f, err := fleet.New(fleet.Config{BlockSize: blockSize, PredictTTL: time.Minute})
	if err != nil {
		log.Fatal(err)
	}
	hashes := hashPrompt(make([]int64, 100)) // 6 whole blocks
	addHolder(f, "engine-0", "GPU", leading(hashes, 2))
	addHolder(f, "engine-1", "GPU", leading(hashes, 5))

	var result fleet.Result // of one goroutine, for all its queries
	show := func() {
		if err := f.Lookup(&result, hashes); err != nil {
			log.Fatal(err)
		}
		for _, p := range result.Holders {
			fmt.Println(p.Engine, "has", p.Tokens, "tokens:", p.Media)
		}
	}
	show()
	fmt.Println("the prompt is sent to engine-0, and engine-1 ends")
	if err := f.Get(fleet.ID{Engine: "engine-0"}).Predict(hashes); err != nil {
		log.Fatal(err)
	}
	f.Get(fleet.ID{Engine: "engine-1"}).Close()
	show()
	// Output:
	// engine-1 has 80 tokens: [{GPU 80}]
	// engine-0 has 32 tokens: [{GPU 32}]
	// the prompt is sent to engine-0, and engine-1 ends
	// engine-0 has 96 tokens: [{GPU 32} {predicted 96}]
}
