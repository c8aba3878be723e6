package events_test

import (
	"fmt"
	"log"
	"time"

	"github.com/hitline/hitline/blockhash"
	"github.com/hitline/hitline/events"
	"github.com/hitline/hitline/netproto"
)

// engine is an engine as a router knows it.
type engine struct {
	name     string
	follower *events.Follower
	blocks   *events.Set
}

// followEngine begins to follow an engine. The caller closes its follower.
func followEngine(name, endpoint, replay string) (*engine, error) {
	set := events.NewSet(0)
	f, err := events.NewFollower(events.Config{Name: name, Connect: endpoint, Replay: replay}, set)
	if err != nil {
		return nil, err
	}
	if err := f.Start(); err != nil {
		return nil, err
	}
	return &engine{name: name, follower: f, blocks: set}, nil
}

// held returns how many leading blocks of a prompt the engine has: none while it is stale.
func (e *engine) held(hashes netproto.Hashes) int {
	// vLLM names the group, and an engine on GPUs its medium. SGLang names no group: events.NoGroup.
	for i, hash := range hashes.All() {
		if !e.blocks.Contains(0, events.Tier{Medium: "GPU"}, hash) {
			return i
		}
	}
	return hashes.Len()
}

// A router follows two engines, and asks which of them has the longest prefix of a prompt. Here they send whole digests:
// VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES=0. From engines that send integers each hash is the last 8 bytes of the digest.
func Example() {
	const blockSize = 16 // of the engines
	hasher, err := blockhash.NewVLLM(blockhash.VLLMConfig{Release: "0.33.0", BlockSize: blockSize})
	if err != nil {
		log.Fatal(err)
	}
	prompt := make([]int64, 60) // token ids
	joined, err := hasher.AppendHashes(nil, prompt, nil)
	if err != nil {
		log.Fatal(err)
	}
	hashes := netproto.NewHashes(joined, hasher.HashLen())

	var engines []*engine
	for i, p := range publishers(hashes) {
		defer p.Close()
		// The endpoints are such as tcp://10.0.0.5:5557 and tcp://10.0.0.5:5558.
		e, err := followEngine(fmt.Sprint("engine-", i), p.Endpoint, p.Replay)
		if err != nil {
			log.Fatal(err)
		}
		defer e.follower.Close()
		engines = append(engines, e)
	}
	for _, e := range engines {
		for end := time.Now().Add(10 * time.Second); e.blocks.Stale() && time.Now().Before(end); {
			time.Sleep(time.Millisecond) // the replay has not ended
		}
		fmt.Printf("%s has %d of %d tokens, complete: %v\n", e.name, e.held(hashes)*blockSize, len(prompt), e.follower.Status().Complete)
	}
	// Output:
	// engine-0 has 16 of 60 tokens, complete: true
	// engine-1 has 48 of 60 tokens, complete: true
}
