package events_test

import (
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/hitline/hitline/blockhash"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/router/events"
)

// engine is an engine as a router knows it, and the Holder of its blocks. It has one group, of full attention, and
// caches in one medium: otherwise a Holder keeps blocks by group and tier.
type engine struct {
	name     string
	follower *events.Follower

	mu     sync.Mutex
	blocks map[string]bool
	stale  bool
}

func (e *engine) Store(b *events.Blocks, held []bool) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, hash := range b.Hashes.All() {
		held[i] = e.blocks[string(hash)]
		e.blocks[string(hash)] = true
	}
	return nil
}

func (e *engine) Remove(b *events.Blocks) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, hash := range b.Hashes.All() {
		delete(e.blocks, string(hash))
	}
	return nil
}

func (e *engine) Clear() {
	e.mu.Lock()
	defer e.mu.Unlock()
	clear(e.blocks)
}

func (e *engine) SetStale(stale bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stale = stale
}

// isStale reports whether the engine may have said something that has not arrived.
func (e *engine) isStale() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.stale
}

// held returns how many leading blocks of a prompt the engine has: none while it is stale.
func (e *engine) held(hashes coordinator.Hashes) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stale {
		return 0
	}
	for i, hash := range hashes.All() {
		if !e.blocks[string(hash)] {
			return i
		}
	}
	return hashes.Len()
}

// followEngine begins to follow an engine. The caller closes its follower.
func followEngine(name, endpoint, replay string) (*engine, error) {
	e := &engine{name: name, blocks: map[string]bool{}, stale: true}
	var err error
	if e.follower, err = events.NewFollower(events.Config{Name: name, Endpoint: endpoint, Replay: replay}, e); err != nil {
		return nil, err
	}
	return e, e.follower.Start()
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
	hashes := coordinator.NewHashes(joined, hasher.HashLen())

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
		for end := time.Now().Add(10 * time.Second); e.isStale() && time.Now().Before(end); {
			time.Sleep(time.Millisecond) // the replay has not ended
		}
		fmt.Printf("%s has %d of %d tokens, complete: %v\n", e.name, e.held(hashes)*blockSize, len(prompt), e.follower.Status().Complete)
	}
	// Output:
	// engine-0 has 16 of 60 tokens, complete: true
	// engine-1 has 48 of 60 tokens, complete: true
}
