package coordinator

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/conformance"
	"github.com/hitline/hitline/internal/oracle"
)

// ofOracle returns the coordinator of a random pool.
func ofOracle(t *testing.T, slow oracle.Pool) *Coordinator {
	t.Helper()
	text, err := json.Marshal(slow)
	require.NoError(t, err)
	var pool Pool
	require.NoError(t, json.Unmarshal(text, &pool))
	c, err := New(pool)
	require.NoError(t, err, "%s", text)
	return c
}

// TestStoredChunksAgainstTheOracle compares the chunks that random prompts of random pools of
// all releases store with the oracle's masks, entry by entry.
func TestStoredChunksAgainstTheOracle(t *testing.T) {
	seen := map[string]int{}
	for seed := range seedsFor(4000) {
		r := rand.New(rand.NewPCG(seed, 3))
		slow := oracle.RandomPool(r)
		if r.IntN(2) == 0 {
			interval := r.IntN(4) * slow.SchedulerBlockSize
			slow.RetentionInterval = &interval
		}
		c := ofOracle(t, slow)
		for range 4 {
			tokens, start := r.IntN(12*slow.SchedulerBlockSize), r.IntN(3)*r.IntN(8*slow.SchedulerBlockSize)
			requireStored(t, seed, c, &slow, tokens, start, r.IntN(2*tokens+2)-1)
		}
		seen[slow.Release]++
	}
	for _, release := range conformance.Releases {
		require.NotZero(t, seen[release], release)
	}
}

// requireStored compares one call. promptTokens is NoPrompt if it is unknown.
func requireStored(t *testing.T, seed uint64, c *Coordinator, slow *oracle.Pool, tokens, start, promptTokens int) {
	t.Helper()
	prompt := &promptTokens
	if promptTokens == NoPrompt {
		prompt = nil
	}
	align := int(c.Alignment())
	aligned, alignedStart := tokens/align*align, start/align*align
	masks, class := slow.StoreMask(aligned, 0, prompt)
	chunks, err := c.StoredChunks(nil, int64(tokens), int64(start), int64(promptTokens))
	if class != "" {
		require.Equal(t, "AssertionError", class)
		require.ErrorIs(t, err, ErrPrecondition)
		return
	}
	require.NoError(t, err)
	require.Len(t, chunks, len(slow.StoreGroups()))
	for number, g := range slow.StoreGroups() {
		block := slow.Groups[g].BlockSize
		want := make([]byte, aligned/block+2)
		for i := range want {
			want[i] = 'F'
			if (i+1)*block > alignedStart && i < len(masks[g].Entries) && masks[g].Entries[i] {
				want[i] = 'T'
			}
		}
		got := []byte(strings.Repeat("F", len(want)))
		for at := int64(0); ; {
			from, end, ok := chunks[number].Next(at)
			if !ok {
				break
			}
			for i := from; i < end; i++ {
				require.True(t, chunks[number].Has(i))
				got[i] = 'T'
			}
			if at = end; end < int64(len(got)) {
				require.False(t, chunks[number].Has(end))
			}
		}
		require.Equal(t, string(want), string(got), "seed %d, group %d, %d tokens from %d of %d", seed, g, tokens, start, promptTokens)
	}
}

// TestStoresStates: from 0.29.0 on masks keep no chunk of a mamba group.
func TestStoresStates(t *testing.T) {
	for _, tc := range []struct {
		release string
		want    bool
	}{{"0.28.0", false}, {"0.29.0", true}, {NewestRelease(), true}} {
		c := must(t, Pool{VLLM: tc.release, Groups: []Group{{Kind: FullAttention, BlockSize: 16}, {Kind: Mamba, BlockSize: 16}}})
		require.False(t, c.StoresStates(0))
		require.Equal(t, tc.want, c.StoresStates(1), tc.release)
		chunks, err := c.StoredChunks(nil, 64, 0, NoPrompt)
		require.NoError(t, err)
		require.Equal(t, !tc.want, chunks[1].Has(0))
	}
}
