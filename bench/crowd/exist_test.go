//go:build linux

package crowd

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/bench/process"
	python "github.com/hitline/hitline/clients/python"
	"github.com/hitline/hitline/internal/storetest"
	"github.com/hitline/hitline/scripts/reference"
)

// startMaster starts a real master that ends with the test.
func startMaster(t *testing.T) (*process.Master, string) {
	t.Helper()
	path := storetest.RequireMooncake(t, storetest.MooncakeRelease).Python()
	found, err := process.FindMooncake(t.Context(), path, time.Minute)
	require.NoError(t, err)
	master, err := found.StartMaster(t.Context(), time.Minute)
	require.NoError(t, err)
	t.Cleanup(master.Stop)
	return master, path
}

// recorded returns what vLLM's own lookup and Mooncake's own client ask a master for prompts of so many hashes.
func recorded(t *testing.T, tp int, hashes ...int) (requests [][]byte) {
	master, path := startMaster(t)
	var mu sync.Mutex
	through, err := newTap(master.RPC, func(request []byte) {
		mu.Lock()
		defer mu.Unlock()
		requests = append(requests, request)
	})
	require.NoError(t, err)
	t.Cleanup(through.close)
	folder, err := os.MkdirTemp("/tmp", "crowd") // the paths of sockets are short
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	require.NoError(t, os.CopyFS(folder, reference.OverMaster))
	require.NoError(t, os.CopyFS(folder, python.Client))
	start := func(role, master string) *process.Child {
		cmd := exec.Command(path, "-B", filepath.Join(folder, "over_master.py"), role, newPool(tp).VLLM, folder, master)
		cmd.Env = append(process.Environ(), "PYTHONPATH="+folder, "PYTHONUNBUFFERED=1")
		child, err := process.StartChild(t.Context(), role, cmd, process.Options{Timeout: time.Minute})
		if err != nil && strings.Contains(err.Error(), "over_master: https://") {
			storetest.SkipOrFail(t, "no modules of vLLM: %v", err)
		}
		require.NoError(t, err)
		t.Cleanup(child.Stop)
		var pool map[string]any
		text, err := json.Marshal(newPool(tp))
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(text, &pool))
		request := map[string]any{"do": "start", "pool": pool, "rank": 0, "hitlines": map[string]string{}}
		require.NoError(t, child.Do(t.Context(), 0, request, &struct{}{}))
		return child
	}
	start("worker", through.addr())
	engine := start("engine", master.RPC)
	var prompts []map[string]any
	for _, n := range hashes {
		prompts = append(prompts, map[string]any{"chain": 0, "hashes": n, "start": 0, "told": 0})
	}
	require.NoError(t, engine.Do(t.Context(), 0, map[string]any{"do": "prepare", "seed": "a", "prompts": prompts}, &struct{}{}))
	requests = nil // those of start
	ask := map[string]any{"do": "ask", "sides": []string{"vllm"}, "count": len(hashes)}
	require.NoError(t, engine.Do(t.Context(), 0, ask, &struct{}{}))
	return requests
}

// A question for keys is that of vLLM's own lookup and Mooncake's own client, byte for byte, in one request.
func TestExistRequest(t *testing.T) {
	const longest = 8200 // at TP 8 more keys than 16 bits count
	var hashes []byte
	for i := range longest {
		hash := sha256.Sum256(fmt.Appendf(nil, "a:0:%d", i))
		hashes = append(hashes, hash[:]...)
	}
	for tp, lengths := range map[int][]int{1: {1, 40, 300}, 8: {1, 31, 32, 700, longest}} {
		pool := newPool(tp)
		pool.CachePrefix = "v" // that of over_master.py
		prefixes, err := keyPrefixes(pool)
		require.NoError(t, err)
		requests := recorded(t, tp, lengths...)
		require.Len(t, requests, len(lengths))
		for i, want := range requests {
			got := existRequest(le.Uint32(want[4:]), prefixes, hashes[:lengths[i]*len(hashes)/longest])
			assert.True(t, string(want) == string(got), "TP %d, %d hashes: %.60x, not %.60x", tp, lengths[i], got, want)
			assert.Equal(t, lengths[i]*tp, existKeys(got))
		}
	}
}
