package router_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/hitline/hitline/blockhash"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/router"
	"github.com/hitline/hitline/router/fleet"
)

const (
	blockSize = 16 // of the engines
	release   = "0.33.0"
)

// caughtUp waits until the replays of all sources have ended.
func caughtUp(s *router.Service) bool {
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		stale := false
		for _, source := range s.Status() {
			stale = stale || source.Stale
		}
		if !stale {
			return true
		}
	}
	return false
}

// A router follows two engines that share a store. One call says how much of a prompt each of them has, and how
// much of it any engine can load.
func Example() {
	// The store is asked by the rules and keys of its pool. It is in memory here; lookup.ServiceConfig.Backend is a
	// Mooncake store, a Redis or another one.
	store, err := lookup.NewService(lookup.ServiceConfig{Pool: coordinator.Pool{VLLM: release, HashBlockSize: blockSize}})
	if err != nil {
		log.Fatal(err)
	}
	llama := router.ModelKey{Name: "llama"}
	service, err := router.New(router.Config{Models: []router.Model{{
		ModelKey: llama,
		Fleet:    fleet.Config{BlockSize: blockSize},
		Pool:     store,
		Hash:     &router.Hashing{Release: release, Algorithm: blockhash.SHA256},
	}}})
	if err != nil {
		log.Fatal(err)
	}
	defer service.Close()

	prompt := make([]int64, 100) // token ids: 6 whole blocks
	hasher, err := blockhash.NewVLLM(blockhash.VLLMConfig{Release: release, BlockSize: blockSize})
	if err != nil {
		log.Fatal(err)
	}
	joined, err := hasher.AppendHashes(nil, prompt, nil)
	if err != nil {
		log.Fatal(err)
	}
	leading := func(n int) coordinator.Hashes {
		return coordinator.NewHashes(joined[:n*hasher.HashLen()], hasher.HashLen())
	}
	if err := store.Store(context.Background(), coordinator.GroupRank{}, leading(5)); err != nil {
		log.Fatal(err)
	}
	for i, blocks := range []int{2, 3} {
		engine := publish(leading(blocks))
		defer engine.Close()
		name := fmt.Sprint("engine-", i)
		// The endpoints are such as tcp://10.0.0.5:5557 and tcp://10.0.0.5:5558.
		if err := service.Add(router.Source{Endpoint: engine.Endpoint, Replay: engine.Replay, Model: llama.Name, Engine: name}); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println("caught up:", caughtUp(service))

	var answer router.Answer // of one goroutine, for all its queries
	query := router.Query{ModelKey: llama, Tokens: prompt, Loadable: true}
	if err := service.Query(context.Background(), &query, &answer); err != nil {
		log.Fatal(err)
	}
	for _, p := range answer.Holders {
		fmt.Println(p.Engine, "has", p.Tokens, "of", len(prompt), "tokens")
	}
	fmt.Println("the store can load", answer.LoadableTokens)
	// Output:
	// caught up: true
	// engine-1 has 48 of 100 tokens
	// engine-0 has 32 of 100 tokens
	// the store can load 80
}
