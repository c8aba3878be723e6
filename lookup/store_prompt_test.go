package lookup

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup/api"
)

// promptService returns a service over memory.
func promptService(t testing.TB, pool coordinator.Pool) *Service {
	t.Helper()
	s, err := NewService(ServiceConfig{Pool: pool})
	require.NoError(t, err)
	return s
}

// mambaPool has a full and a mamba group.
func mambaPool(release string) coordinator.Pool {
	return coordinator.Pool{VLLM: release, HashBlockSize: 16, SchedulerBlockSize: 64, Groups: []coordinator.Group{
		{Kind: coordinator.FullAttention, BlockSize: 16}, {Kind: coordinator.Mamba, BlockSize: 64},
	}}
}

// TestStorePromptRefusals: what does not fit is refused, and nothing is stored.
func TestStorePromptRefusals(t *testing.T) {
	pool := mambaPool("0.28.0")
	pool.TPSize, pool.NumKVHead = 4, 2
	s := promptService(t, pool)
	hashes := coordinator.NewHashes(lookuptest.Chain("refused", 16, 32), 32)
	states := func(states ...api.State) api.PromptStore { return api.PromptStore{NumTokens: 256, States: states} }
	for name, tc := range map[string]struct {
		p    api.PromptStore
		want error
		text string
	}{
		"a hash behind":       {api.PromptStore{NumTokens: 320}, api.ErrPrompt, "group 0 stores chunk 16, whose hash 16 is missing: the request has the hashes 0 to 15"},
		"a hash in front":     {api.PromptStore{NumTokens: 256, FirstHash: 1}, api.ErrPrompt, "group 0 stores chunk 0, whose hash 0 is missing"},
		"hashes far behind":   {api.PromptStore{NumTokens: 256, StartToken: 128, FirstHash: 9}, api.ErrPrompt, "chunk 8"},
		"all tokens":          {api.PromptStore{NumTokens: math.MaxUint32}, api.ErrPrompt, "chunk 16"},
		"a number":            {api.PromptStore{NumTokens: math.MaxUint32 + 1}, api.ErrPrompt, "num_tokens 4294967296 does not fit 32 bits"},
		"a negative number":   {api.PromptStore{NumTokens: 256, StartToken: -1}, api.ErrPrompt, "start_token"},
		"a negative hash":     {api.PromptStore{NumTokens: 256, FirstHash: -1}, api.ErrPrompt, "first_hash"},
		"a rank":              {api.PromptStore{NumTokens: 256, Ranks: []coordinator.GroupRank{{TPRank: 4}}}, ErrGroupRank, "tp_rank 4"},
		"a pipeline rank":     {api.PromptStore{NumTokens: 256, Ranks: []coordinator.GroupRank{{}, {PPRank: 1}}}, ErrGroupRank, "pp_rank 1"},
		"a state behind":      {states(api.State{Group: 1, Tokens: 272}), api.ErrPrompt, "token 272"},
		"a state that is cut": {states(api.State{Group: 1, Tokens: 70}), api.ErrPrompt, "token 70"},
		"a state of 3 tokens": {states(api.State{Group: 1, Tokens: 3}), api.ErrPrompt, "token 3"},
		"not a mamba group":   {states(api.State{Group: 0, Tokens: 64}), api.ErrPrompt, "group 0, which is no mamba group"},
		"no group":            {states(api.State{Group: 2, Tokens: 64}), api.ErrPrompt, "group 2"},
		"a group's number":    {states(api.State{Group: -1, Tokens: 64}), api.ErrPrompt, "group -1"},
	} {
		t.Run(name, func(t *testing.T) {
			stored, err := s.StorePrompt(t.Context(), tc.p, hashes)
			require.ErrorIs(t, err, tc.want)
			require.ErrorContains(t, err, tc.text)
			require.Nil(t, stored)
			require.Zero(t, s.memory.index.Stats().Entries)
		})
	}
	_, err := s.StorePrompt(t.Context(), api.PromptStore{NumTokens: 256}, coordinator.NewHashes(make([]byte, 100), 65))
	require.ErrorIs(t, err, ErrHashLen)
	_, err = s.StorePrompt(t.Context(), api.PromptStore{NumTokens: 256}, coordinator.NewHashes(make([]byte, 100), 32))
	require.ErrorIs(t, err, ErrCutKey)
	stored, err := s.StorePrompt(t.Context(), api.PromptStore{NumTokens: 256, StartToken: math.MaxUint32}, hashes)
	require.NoError(t, err)
	require.Equal(t, []int64{0, 0}, stored, "nothing behind a start beyond the end")
	require.Zero(t, s.memory.index.Stats().Entries)
}

// TestStorePromptListsParts: if the index has no class for the ranks of a group, the other
// groups are stored, and the error says what is missing.
func TestStorePromptListsParts(t *testing.T) {
	s := promptService(t, coordinator.Pool{HashBlockSize: 16, TPSize: 80, SchedulerBlockSize: 64, Groups: []coordinator.Group{
		{Kind: coordinator.FullAttention, BlockSize: 16}, {Kind: coordinator.SlidingWindow, BlockSize: 16, SlidingWindow: 33},
	}})
	hashes := lookuptest.Chain("parts", 12, 32)
	w, err := newPromptStore(s, &api.PromptStore{NumTokens: 192}, coordinator.NewHashes(hashes, 32))
	require.NoError(t, err)
	w.failed[w.groups[1].merged[0]] = &promptFailure{err: index.ErrClasses}
	for _, place := range w.groups[1].merged {
		w.failed[place] = w.failed[w.groups[1].merged[0]]
	}
	require.NoError(t, w.storePiece(t.Context(), 0, 12))
	require.Equal(t, []int64{12, 0}, w.stored())
	err = w.err()
	require.ErrorIs(t, err, index.ErrClasses)
	var parts *api.PartsError
	require.ErrorAs(t, err, &parts)
	require.Len(t, parts.Parts, api.MaxParts)
	require.Equal(t, 16, parts.More)
	require.Equal(t, api.Part{Group: 1, TPRank: 3, Chunks: 6, Error: index.ErrClasses.Error()}, parts.Parts[3])
	require.ErrorIs(t, err, api.ErrPartlyDone)
}

// TestStorePromptRunsOutOfClasses fills the index with sets of ranks until it has no class for
// what comes, in the middle of a prompt.
func TestStorePromptRunsOutOfClasses(t *testing.T) {
	const ranks, n = 24, 200
	s, err := NewService(ServiceConfig{
		Pool: coordinator.Pool{HashBlockSize: 16, TPSize: ranks}, Memory: index.Config{MaxBytes: index.MinMaxBytes},
	})
	require.NoError(t, err)
	r := rand.New(rand.NewPCG(1, 2))
	hashes := coordinator.NewHashes(lookuptest.Chain("classes", n, 32), 32)
	others := lookuptest.Chain("others", 4000, 32)
	for i := range 100 { // a class of its own for each hash of the second half
		at := []coordinator.GroupRank{{TPRank: uint16(i % ranks)}, {TPRank: uint16(r.IntN(ranks))}, {TPRank: uint16(r.IntN(ranks))}}
		for _, at := range at {
			require.NoError(t, s.Store(t.Context(), at, coordinator.NewHashes(hashes.At(100+i), 32)))
		}
	}
	for i := 0; err == nil; i++ {
		require.Less(t, i, 4000*ranks)
		err = s.Store(t.Context(), coordinator.GroupRank{TPRank: uint16(r.IntN(ranks))}, coordinator.NewHashes(others[i%4000*32:][:32], 32))
	}
	require.ErrorIs(t, err, index.ErrClasses)
	p := api.PromptStore{NumTokens: n * 16, Ranks: []coordinator.GroupRank{{TPRank: 1}, {TPRank: 5}}}
	for i := range ranks { // the class of the first half may be there
		_ = s.Store(t.Context(), coordinator.GroupRank{TPRank: uint16(i)}, coordinator.NewHashes(others[:32], 32))
	}
	partly := 0
	for rank := range ranks { // a store tells whether its first keys are stored
		fresh := lookuptest.Chain(fmt.Sprint("fresh", rank), 1, 32)
		err := s.Store(t.Context(), coordinator.GroupRank{TPRank: uint16(rank)}, coordinator.NewHashes(append(fresh, hashes.Bytes()[100*32:]...), 32))
		require.ErrorIs(t, err, index.ErrClasses)
		held, evictErr := s.memory.index.Evict(rank, fresh[:32], 32)
		require.NoError(t, evictErr)
		require.Equal(t, held == 1, errors.Is(err, api.ErrPartlyDone), "rank %d", rank)
		partly += held
	}
	require.Positive(t, partly)
	stored, err := s.StorePrompt(t.Context(), p, hashes)
	var parts *api.PartsError
	require.ErrorAs(t, err, &parts)
	require.Len(t, parts.Parts, 2)
	for i, rank := range []int{1, 5} {
		part := parts.Parts[i]
		require.Equal(t, rank, part.TPRank)
		require.Equal(t, stored[0], part.FirstChunk)
		require.Equal(t, int64(n), part.FirstChunk+part.Chunks)
		for c := range n {
			held, err := s.memory.index.Evict(rank, hashes.At(c), 32)
			require.NoError(t, err)
			if c < int(stored[0]) {
				require.Equal(t, 1, held, "chunk %d", c)
			}
		}
	}
}

// TestStorePromptOverAFailingBackend: a rank that the backend does not take is listed, the
// others are stored.
func TestStorePromptOverAFailingBackend(t *testing.T) {
	broken := errors.New("disk full")
	store := &lookuptest.KeyStore{}
	store.Before = func(_ context.Context, op string, keys []string) error {
		if op == "store" && strings.Contains(keys[0], "@tp_rank:1@") && strings.Contains(keys[0], "@group:0@") {
			return broken
		}
		return nil
	}
	pool := mambaPool(coordinator.NewestRelease())
	pool.TPSize = 2
	s, err := NewService(ServiceConfig{Pool: pool, Backend: store, Remote: patient})
	require.NoError(t, err)
	hashes := coordinator.NewHashes(lookuptest.Chain("failing", 16, 32), 32)
	stored, err := s.StorePrompt(t.Context(), api.PromptStore{NumTokens: 256, States: []api.State{{Group: 1, Tokens: 128}}}, hashes)
	require.ErrorIs(t, err, broken)
	require.Equal(t, []int64{0, 1}, stored)
	var parts *api.PartsError
	require.ErrorAs(t, err, &parts)
	require.Len(t, parts.Parts, 1)
	part := parts.Parts[0]
	require.Equal(t, [3]int64{1, 0, 16}, [3]int64{int64(part.TPRank), part.FirstChunk, part.Chunks})
	require.ErrorIs(t, err, api.ErrPartlyDone)
	require.Len(t, store.Keys, 16+2)
}

// TestStorePromptOverADeadBackend: if nothing is stored the error is no part's.
func TestStorePromptOverADeadBackend(t *testing.T) {
	broken := errors.New("disk full")
	store := &lookuptest.KeyStore{Before: func(context.Context, string, []string) error { return broken }}
	s, err := NewService(ServiceConfig{Pool: hybridPool, Backend: store, Remote: patient})
	require.NoError(t, err)
	_, err = s.StorePrompt(t.Context(), api.PromptStore{NumTokens: 256}, coordinator.NewHashes(lookuptest.Chain("dead", 16, 32), 32))
	require.ErrorIs(t, err, broken)
	require.NotErrorIs(t, err, api.ErrPartlyDone)
}

// FuzzStorePrompt stores prompts with any numbers, ranks and states. What is stored is what the
// reply says, and a refusal stores nothing.
func FuzzStorePrompt(f *testing.F) {
	f.Add(uint32(256), uint32(0), uint32(0), uint32(0), []byte{}, []byte{}, uint8(16))
	f.Add(uint32(math.MaxUint32), uint32(math.MaxUint32), uint32(0), uint32(math.MaxUint32), make([]byte, 20), make([]byte, 80), uint8(1))
	f.Add(uint32(640), uint32(256), uint32(300), uint32(15), []byte{1, 0}, []byte{1, 20}, uint8(30))
	pool := mambaPool(coordinator.NewestRelease())
	pool.TPSize, pool.RetentionInterval = 2, new(128)
	pool.Groups = append(pool.Groups, coordinator.Group{Kind: coordinator.SlidingWindow, BlockSize: 16, SlidingWindow: 20})
	s, err := NewService(ServiceConfig{Pool: pool})
	require.NoError(f, err)
	chain := lookuptest.Chain("fuzz", 255, 32)
	f.Fuzz(func(t *testing.T, tokens, start, promptTokens, first uint32, ranks, states []byte, numHashes uint8) {
		s.memory.index.Reset()
		before := s.memory.index.Stats().Stored
		p := api.PromptStore{NumTokens: int64(tokens), StartToken: int64(start), PromptTokens: int64(promptTokens), FirstHash: int(first)}
		for i := 0; i+1 < len(ranks); i += 2 {
			p.Ranks = append(p.Ranks, coordinator.GroupRank{TPRank: uint16(ranks[i]), PPRank: uint16(ranks[i+1])})
		}
		for i := 0; i+1 < len(states); i += 2 {
			p.States = append(p.States, api.State{Group: int(states[i]), Tokens: 16 * int64(states[i+1])})
		}
		hashes := coordinator.NewHashes(chain[:max(1, int(numHashes))*32], 32)
		got, err := s.StorePrompt(t.Context(), p, hashes)
		if err != nil {
			require.Zero(t, s.memory.index.Stats().Entries)
			return
		}
		w, err := newPromptStore(s, &p, hashes)
		require.NoError(t, err)
		sum := int64(0)
		for i, stored := range got {
			require.LessOrEqual(t, stored, int64(hashes.Len()))
			sum += stored * int64(len(w.groups[i].places)) // groups differ, so no key is stored twice at a place
		}
		require.Equal(t, sum, s.memory.index.Stats().Stored-before)
	})
}
