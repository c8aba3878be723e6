package node_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/internal/oracle"
	"github.com/hitline/hitline/internal/storetest"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/access"
	"github.com/hitline/hitline/lookup/server"
	"github.com/hitline/hitline/netproto"
)

const (
	cases   = 300
	hashLen = 4
)

// loopCase is a line for loop.mjs.
type loopCase struct {
	Pool    coordinator.Pool `json:"pool"`
	Hashes  []string         `json:"hashes"`
	Tokens  int64            `json:"tokens"`
	Stored  int64            `json:"stored"` // tokens that are stored
	Ranks   [][]loopRank     `json:"ranks"`
	Strides []int            `json:"strides"`
	States  [][2]int64       `json:"states"` // groups, and tokens
	Bulk    bool             `json:"bulk"`

	rules *coordinator.Coordinator
	keys  netproto.Hashes
}

type loopRank struct {
	TP  int `json:"tp"`
	PP  int `json:"pp"`
	PCP int `json:"pcp"`
}

// loopMask is a mask as client.mjs has it.
type loopMask struct {
	Group      *int
	First, End int64
	Runs       [][2]int64
}

// loopResult is a line of loop.mjs.
type loopResult struct {
	Error string
	Masks []loopMask
	Plan  struct {
		Tokens int64
		Tails  []int64
		Masks  []loopMask
	}
	Hit    int64
	Load   []loopMask
	Server struct{ Instance, Version string }
}

// A connector in Node stores prompts of random pools by their masks. What it is told to be hit
// is what the coordinator predicts, and nothing that it is told to load is absent. It may do so
// by its token alone.
func TestLoop(t *testing.T) {
	node := storetest.NodeJS(t)
	const token = "a token of the tests"
	rules, err := access.NewRules(0, []access.Credential{
		{Name: "node", Digest: access.DigestOf([]byte(token)), Permissions: access.All},
	})
	require.NoError(t, err)
	listener := server.Listener{Address: "tcp://127.0.0.1:0", Settings: server.Settings{Rules: rules}}
	srv, err := server.New(nil, server.Config{
		Listeners: []server.Listener{listener}, Limits: server.DefaultLimits(), MaxPools: cases,
		AcceptPool: func(pool coordinator.Pool) (*lookup.Service, error) {
			return lookup.NewService(lookup.ServiceConfig{Pool: pool, Memory: index.Config{MaxBytes: index.MinMaxBytes}})
		},
	})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	require.NoError(t, srv.Start(ctx))
	defer func() { require.NoError(t, srv.Shutdown(ctx)) }()

	var asked []loopCase
	var input bytes.Buffer
	for r := rand.New(rand.NewPCG(1, 1)); len(asked) < cases; {
		if c, ok := randomCase(r, len(asked)); ok {
			asked = append(asked, c)
			require.NoError(t, json.NewEncoder(&input).Encode(c))
		}
	}
	cmd := exec.CommandContext(ctx, node, "loop.mjs", strings.TrimPrefix(srv.Addrs()[0], "tcp://"), token)
	cmd.Stdin, cmd.Stderr = &input, os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err)
	lines := bufio.NewScanner(bytes.NewReader(out))
	lines.Buffer(nil, 1<<20)
	hits := 0
	for i := range asked {
		require.True(t, lines.Scan(), "%d lines of %d", i, len(asked))
		var got loopResult
		require.NoError(t, json.Unmarshal(lines.Bytes(), &got))
		description, _ := json.Marshal(asked[i])
		require.NoError(t, asked[i].check(got), "%s\n%s", description, lines.Text())
		if got.Hit > 0 {
			hits++
		}
	}
	assert.Greater(t, hits, cases/4)
}

// randomCase returns a case, and false for pools that masks do not work with.
func randomCase(r *rand.Rand, number int) (c loopCase, ok bool) {
	pool := oracle.RandomPool(r)
	if strings.HasPrefix(pool.Revision, "2026") || pool.CapacityOnly {
		return c, false
	}
	pool.ModelName = fmt.Sprintf("model-%d", number) // each case has a pool of its own
	text, err := json.Marshal(pool)
	text = bytes.Replace(text, []byte(`"revision"`), []byte(`"vllm"`), 1)
	if err = errors.Join(err, json.Unmarshal(text, &c.Pool)); err != nil {
		panic(err)
	}
	if c.rules, err = coordinator.New(c.Pool); err != nil {
		return c, false
	}
	n := oracle.RandomChainLen(r, &pool)
	blob := make([]byte, n*hashLen)
	for i := range blob {
		blob[i] = byte(r.Uint32())
	}
	c.keys = netproto.NewHashes(blob, hashLen)
	for i := range n {
		c.Hashes = append(c.Hashes, hex.EncodeToString(c.keys.At(i)))
	}
	length, align := int64(n*pool.HashBlockSize), c.rules.Alignment()
	c.Stored = length / align * align
	if c.Tokens = c.Stored; !c.rules.NeedsAligned() {
		c.Tokens += 1
	}
	c.Bulk = r.IntN(2) == 0
	c.setGroups(length)
	return c, n > 0
}

// setGroups sets the ranks, the strides and the states of the groups.
func (c *loopCase) setGroups(length int64) {
	c.States = [][2]int64{}
	for g := range c.rules.NumGroups() {
		var ranks []loopRank
		for _, rank := range c.rules.Ranks(g) {
			ranks = append(ranks, loopRank{rank.TP, rank.PP, rank.PCP})
		}
		c.Ranks = append(c.Ranks, ranks)
		c.Strides = append(c.Strides, c.rules.Stride(g))
		group := c.rules.Group(g)
		if group.Kind == coordinator.Mamba && c.rules.HasTailBoundaries() { // no mask has it
			block := int64(group.BlockSize)
			c.States = append(c.States, [2]int64{int64(g), length / block * block})
		}
	}
}

// check compares a result with what the coordinator says of the same store.
func (c *loopCase) check(got loopResult) error {
	want, err := c.rules.StoreMask(c.Stored, 0, coordinator.NoPrompt)
	if err != nil {
		return err
	}
	stored := map[string]bool{}
	for g := range c.rules.NumGroups() {
		for _, chunk := range masked(want[c.rules.PoolIndex(g)]) {
			c.hold(stored, g, int(chunk+1)*c.Strides[g]-1)
		}
	}
	for _, state := range c.States {
		if state[1] > 0 {
			c.hold(stored, int(state[0]), int(state[1])/c.rules.Pool().HashBlockSize-1)
		}
	}
	hit, err := c.rules.Lookup(c.Tokens, c.keys, coordinator.ExistsFunc(func(keys []string) ([]int, error) {
		answers := make([]int, len(keys))
		for i, key := range keys {
			if stored[key] {
				answers[i] = 1
			}
		}
		return answers, nil
	}))
	switch {
	case err != nil && strings.Contains(got.Error, "plan"): // the reference fails, too
		return nil
	case err != nil || got.Error != "":
		return fmt.Errorf("failed with %q, want %w", got.Error, err)
	case got.Hit != hit.Tokens || got.Plan.Tokens != hit.Tokens:
		return fmt.Errorf("hit %d, plan %d, want %d", got.Hit, got.Plan.Tokens, hit.Tokens)
	case hit.Tokens > 0 && !assert.ObjectsAreEqual(got.Plan.Masks, got.Load):
		return errors.New("plan and load_mask differ")
	case got.Server.Instance == "":
		return errors.New("ping without an instance")
	}
	for g := range c.rules.NumGroups() {
		i := c.rules.PoolIndex(g)
		if chunks := chunksOf(got.Masks[i]); !slices.Equal(chunks, masked(want[i])) {
			return fmt.Errorf("group %d: store mask %v, want %v", g, chunks, masked(want[i]))
		}
	}
	return c.checkLoads(got, hit, stored)
}

// hold records that all ranks of a group hold a hash.
func (c *loopCase) hold(stored map[string]bool, group, hash int) {
	for _, rank := range c.rules.Ranks(group) {
		stored[c.rules.KeyPrefix(group, rank)+c.Hashes[hash]] = true
	}
}

// checkLoads looks for each chunk that is to be loaded among those stored. The last one of a
// group is keyed by the hash of its tail boundary, if the hit has one.
func (c *loopCase) checkLoads(got loopResult, hit coordinator.Hit, stored map[string]bool) error {
	if hit.Tokens == 0 || c.loadsAbsent() {
		return nil
	}
	unit := c.rules.Pool().HashBlockSize
	for g := range c.rules.NumGroups() {
		chunks := chunksOf(got.Plan.Masks[c.rules.PoolIndex(g)])
		block := int64(c.rules.Group(g).BlockSize)
		for _, chunk := range chunks {
			if chunk*block >= hit.Tokens {
				continue // a mask may be longer than the hit
			}
			hash := int(chunk+1)*c.Strides[g] - 1
			if len(got.Plan.Tails) > 0 && (chunk+1)*block >= hit.Tokens {
				hash = int(got.Plan.Tails[g])/unit - 1
			}
			for _, rank := range c.rules.Ranks(g) {
				if !stored[c.rules.KeyPrefix(g, rank)+c.Hashes[hash]] {
					return fmt.Errorf("group %d: chunk %d is to be loaded, and hash %d is not stored", g, chunk, hash)
				}
			}
		}
	}
	return nil
}

// loadsAbsent reports whether the reference itself may tell to load what its store mask leaves
// out: a window of one token stores nothing, and up to 0.26.0 EAGLE lengthens hits of mamba.
func (c *loopCase) loadsAbsent() bool {
	mamba, eagle := false, false
	for g := range c.rules.NumGroups() {
		group := c.rules.Group(g)
		if group.SlidingWindow == 1 {
			return true
		}
		mamba = mamba || group.Kind == coordinator.Mamba
		eagle = eagle || c.rules.IsEagle(g)
	}
	return mamba && eagle && c.rules.NeedsAligned()
}

// chunksOf returns the true chunks of a mask that was received.
func chunksOf(m loopMask) (chunks []int64) {
	for _, run := range m.Runs {
		for chunk := run[0]; chunk < run[1]; chunk++ {
			chunks = append(chunks, chunk)
		}
	}
	return chunks
}

// masked returns the true chunks of a mask from chunk 0 on.
func masked(m coordinator.Mask) (chunks []int64) {
	for start, end := range m.Runs() {
		for chunk := start; chunk < end; chunk++ {
			chunks = append(chunks, chunk)
		}
	}
	return chunks
}
