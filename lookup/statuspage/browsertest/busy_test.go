package browsertest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup/client"
)

// startBusyServer returns a server of three pools with clients, blocks, lookups and refusals. The prompt
// "system" of pool "" has 24 blocks.
func startBusyServer(t *testing.T) *server {
	t.Helper()
	s := startServer(t, `
pool: {vllm: "0.33.0", model_name: meta-llama/Llama-3.3-70B-Instruct, tp_size: 4, hash_len: 32}
pools:
  llama-8b: {vllm: "0.33.0", model_name: meta-llama/Llama-3.1-8B-Instruct}
  qwen: {vllm: "0.28.0", model_name: Qwen/Qwen3-235B-A22B, tp_size: 8, num_kv_head: 4}
accept_pools: true
max_pools: 4
backend: {memory: {max_bytes: 8GiB}}
`)
	random := rand.New(rand.NewPCG(1, 2))
	for i, pool := range []string{"", "", "", "llama-8b", "llama-8b", "qwen"} {
		var options []client.Option
		if pool != "" {
			options = append(options, client.WithPoolName(pool))
		}
		c := s.dial(options...)
		storePrompt(t, c, "system", 24)
		for range 300 * (i + 1) {
			name := fmt.Sprintf("%s %d", pool, random.IntN(200))
			if lookUp(t, c, name, 30+random.IntN(20)) == 0 {
				storePrompt(t, c, name, 20+random.IntN(10))
			}
		}
	}
	s.dial(client.WithPool("gemma", coordinator.Pool{VLLM: "0.33.0", ModelName: "google/gemma-3-27b-it"}))
	s.refuse()
	return s
}

// refuse makes the server refuse requests and connections, for several reasons.
func (s *server) refuse() {
	s.t.Helper()
	for _, option := range []client.Option{
		client.WithPoolName("llama-405b"),
		client.WithPool("qwen", coordinator.Pool{VLLM: "0.28.0", ModelName: "Qwen/Qwen3-235B-A22B", TPSize: 4, NumKVHead: 4}),
	} {
		if _, err := client.Dial(s.t.Context(), s.address, option); !errors.Is(err, client.ErrRefused) {
			s.t.Fatalf("a pool that is to be refused: %v", err)
		}
	}
	s.send("GET / HTTP/1.1\r\nHost: hitline\r\n\r\n")
}
