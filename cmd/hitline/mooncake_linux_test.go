package main

import (
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/blockhash"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/storetest"
	"github.com/hitline/hitline/lookup/client"
)

// TestMooncake runs doctor and serve over a live master. Mooncake's own client has put the
// blocks.
func TestMooncake(t *testing.T) {
	w := storetest.RequireMooncake(t, storetest.MooncakeRelease)
	m := storetest.StartMaster(t, w, "")
	n := storetest.StartNode(t, w, m)
	n.Put(storedKeys()...)
	masters := "mooncake: {masters: ['" + m.RPC + "'], timeout: 5s"
	t.Run("doctor", func(t *testing.T) {
		d := runDoctor(t, "pool: {model_name: org/m, cache_prefix: p, tp_size: 2}\nbackend: {"+masters+", admin: ['"+m.Admin+"']}}\n")
		assert.Equal(t, exitDone, d.Exit, d.Problems)
		assert.Regexp(t, `^mooncake_master \d.* at `+m.RPC, d.Server)
		assert.Equal(t, "calls with keys and tenant (v0.3.12 on); doctor and explain take leases, as lookups do", d.Mode)
		assert.Equal(t, len(storedKeys()), d.Sampled)
		assert.Contains(t, strings.Join(d.Notes, "\n"), "1 other pool in this store")
		assert.EqualValues(t, 2000, d.LeaseMS)
		d = runDoctor(t, "pool: {model_name: m}\nbackend: {"+masters+"}}\n")
		assert.Equal(t, exitDone, d.Exit, d.Problems)
		assert.Contains(t, strings.Join(d.Notes, "\n"), "name the port of the masters that lists them in backend.mooncake.admin")
	})
	t.Run("serve", func(t *testing.T) { testServeFromMooncake(t, masters, n) })
	t.Run("described pools", func(t *testing.T) { testDescribedPools(t, masters, m, n) })
	t.Run("SGLang", func(t *testing.T) { testSGLangOverMooncake(t, masters, n) })
	t.Run("wrong pool", func(t *testing.T) { testWrongPools(t, masters+", admin: ['"+m.Admin+"']}") })
	t.Run("wrong connection", func(t *testing.T) {
		testWrongConnections(t, map[string]wrongConnection{
			"admin port for RPC": {"mooncake: {masters: ['" + m.Admin + "']}", "is it the HTTP admin port (9003 by default)? RPC is on 50051", true},
			"TLS":                {"mooncake: {masters: ['" + tlsListener(t) + "']}", "is no RPC port of a Mooncake master", false},
		})
	})
	t.Run("RPC port for admin", func(t *testing.T) {
		config := "pool: {model_name: m}\nbackend: {" + masters + ", admin: ['" + m.RPC + "']}}\n"
		const want = "it does not speak HTTP: is it the RPC port? The admin port is 9003 by default"
		d := runDoctor(t, config)
		require.Len(t, d.Problems, 1)
		assert.Contains(t, d.Problems[0], want)
	})
}

func testServeFromMooncake(t *testing.T, masters string, n *storetest.Node) {
	s := startServe(t, "pool: {model_name: org/m, cache_prefix: p, tp_size: 2}\nbackend: {"+masters+"}}\n")
	assert.Contains(t, strings.Join(s.logLines(), "\n"), `"msg":"the store answers","backend":"mooncake","server":"mooncake_master `)
	ask := func(hashes []string) result {
		return hitline(t, strings.Join(hashes, "\n"), "lookup", "--connect", s.address, "--tokens", "640", "--hashes-file", "-")
	}
	hashes := hexHashes("h", promptLen, 32)
	assert.Equal(t, result{exitDone, "640\n", ""}, ask(hashes))
	fresh := hexHashes("fresh", promptLen, 32)
	assert.Equal(t, result{exitDone, "0\n", ""}, ask(fresh))
	for rank := range 2 {
		for _, hash := range fresh[:30-10*rank] {
			n.Put(fmt.Sprintf("p@m@tp_rank:%d@pcp0@dcp0@pp_rank:0@group:0@%s", rank, hash))
		}
	}
	assert.Equal(t, result{exitDone, "320\n", ""}, ask(fresh), "what both ranks have")
	assert.Empty(t, s.warnings())
	for _, args := range []string{"store --hashes-file -", "evict --hashes-file -", "reset --yes"} {
		got := hitline(t, strings.Join(hashes, "\n"), append(strings.Fields(args), "--connect", s.address)...)
		assert.Equal(t, exitFailed, got.code)
		assert.Contains(t, got.stderr, "a Mooncake store")
	}
}

// testSGLangOverMooncake asks for what SGLang engines can load by the keys that one of them tells.
func testSGLangOverMooncake(t *testing.T, masters string, n *storetest.Node) {
	const layout = `{"enabled": true, "backend": "mooncake", "page_size": 4, "hicache_object_layout": {"pools": [
		{"pool": "kv", "suffixes": ["__k"], "hit_policy": "all_pages"},
		{"pool": "swa", "suffixes": ["__swa"], "hit_policy": "trailing_pages", "trailing_pages": 2}],
		"key_prefix": "org-m", "is_mla_backend": true, "pp_rank": 0, "pp_size": 1}}`
	var enabled atomic.Bool
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !enabled.Load() {
			fmt.Fprint(w, `{"enabled": false, "reason": "Mooncake storage is not attached"}`)
			return
		}
		fmt.Fprint(w, layout)
	}))
	defer engine.Close()
	config := "backend: {" + masters + "}}\nrouter: {listen: 127.0.0.1:0, models: [{name: m, block_size: 4, hash: {type: sglang, bigrams: true}, hicache_layout: \"" + engine.URL + "\"}]}\n"
	sglang, err := blockhash.NewSGLang(blockhash.SGLangConfig{PageSize: 4, Bigrams: true, Storage: true, Namespace: blockhash.Namespace{Salt: "s"}})
	require.NoError(t, err)
	tokens, ids := make([]int64, 18), ""
	for i := range tokens {
		tokens[i] = int64(i)
		ids += fmt.Sprintln(i)
	}
	pages, err := sglang.AppendHashes(nil, tokens)
	require.NoError(t, err)
	for page := range len(pages) / 32 {
		hash := hex.EncodeToString(pages[page*32 : page*32+32])
		n.Put("org-m_"+hash+"__k", "org-m_"+hash+"__swa")
	}
	const none = "no engine has the first whole block; hitline router lists those that are followed\n"
	ask := func(s *testServer, tokens int) result {
		prompt := strings.Join(strings.SplitAfter(ids, "\n")[:tokens], "")
		return hitline(t, prompt, "holders", "--connect", s.router, "--tokens-file", "-", "--salt", "s", "--loadable")
	}
	s := startServe(t, config)
	storetest.Eventually(t, "the reason is told", func() bool {
		return ask(s, 18).stdout == none+"what the store can load is unknown: the engine tells no layout: \"Mooncake storage is not attached\"\n"
	})
	enabled.Store(true)
	s = startServe(t, config)
	storetest.Eventually(t, "all is found", func() bool { return ask(s, 18).stdout == none+"the store can load 16 tokens\n" })
	assert.Equal(t, none+"the store can load 12 tokens\n", ask(s, 17).stdout, "the last token is left out, and the pair before it has no other")
	got := hitline(t, strings.Repeat("0123456789abcdef\n", 4), "holders", "--connect", s.router, "--hashes-file", "-", "--loadable")
	assert.Equal(t, exitFailed, got.code)
	assert.Contains(t, got.stderr, "the store's keys need whole digests")
}

// testRenew has blocks asked for that nothing has asked for yet.
func testRenew(t *testing.T, c *client.Client) {
	described, _ := c.Pool()
	require.Equal(t, "always", described.Renew)
	hashes, err := hex.DecodeString(strings.Join(hexHashes("renewed "+described.Name, 4, 32), ""))
	require.NoError(t, err)
	for range 2 {
		require.NoError(t, c.Renew(t.Context(), coordinator.NewHashes(hashes, 32)))
	}
	before, err := c.Stat(t.Context())
	require.NoError(t, err)
	storetest.Eventually(t, "the blocks are renewed once", func() bool {
		stat, err := c.Stat(t.Context())
		return err == nil && stat.RenewedKeys == 8 && stat.BackendKeys == before.BackendKeys
	})
}

// testDescribedPools answers two engines about their pools, which nothing configures. Doctor
// takes that of one.
func testDescribedPools(t *testing.T, masters string, m *storetest.Master, n *storetest.Node) {
	s := startServe(t, "backend: {"+masters+", renew: always}}\n")
	assert.Contains(t, strings.Join(s.logLines(), "\n"), `"accept_pools":true`)
	llama := coordinator.Pool{VLLM: "0.28.0", ModelName: "org/llama", TPSize: 2, Groups: []coordinator.Group{{BlockSize: 16}}}
	hybrid := coordinator.Pool{VLLM: coordinator.NewestRelease(), ModelName: "org/hybrid", Groups: []coordinator.Group{
		{BlockSize: 16}, {Kind: coordinator.SlidingWindow, BlockSize: 16, SlidingWindow: 32},
	}}
	hashes := hexHashes("two", 8, 32)
	for i, hash := range hashes {
		for tp := range 2 {
			n.Put(fmt.Sprintf("llama@tp_rank:%d@pcp0@dcp0@pp_rank:0@group:0@%s", tp, hash))
		}
		if i < 5 {
			n.Put("hybrid@tp_rank:0@pcp0@dcp0@pp_rank:0@group:0@" + hash)
		}
		if i == 3 || i == 4 {
			n.Put("hybrid@tp_rank:0@pcp0@dcp0@pp_rank:0@group:1@" + hash)
		}
	}
	blob, err := hex.DecodeString(strings.Join(hashes, ""))
	require.NoError(t, err)
	hits := map[string]int64{}
	for _, pool := range []coordinator.Pool{llama, hybrid} {
		c, err := client.Dial(t.Context(), s.address, client.WithPool(pool.ModelName, pool))
		require.NoError(t, err)
		defer c.Close()
		hit, err := c.Lookup(t.Context(), 129, coordinator.NewHashes(blob, 32))
		require.NoError(t, err)
		hits[pool.ModelName] = hit.Tokens
		testRenew(t, c)
	}
	assert.Equal(t, map[string]int64{"org/llama": 128, "org/hybrid": 80}, hits)
	file := filepath.Join(t.TempDir(), "prompt.hex")
	require.NoError(t, os.WriteFile(file, []byte(strings.Join(hashes, "\n")), 0o600))
	d := runDoctor(t, "backend: {"+masters+", admin: ['"+m.Admin+"']}}\n", "--pool", "org/llama", "--connect", s.address, "--tokens", "128", "--hashes-file", file)
	assert.Equal(t, exitDone, d.Exit, d.Problems)
	assert.Equal(t, "org/llama", d.Pool)
	require.NotNil(t, d.Prompt)
	assert.EqualValues(t, 112, d.Prompt.HitTokens, "the engine computes the last block")
}
