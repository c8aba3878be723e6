package lookup

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/internal/lookuptest"
	"github.com/hitline/hitline/netproto"
)

// promptService returns a service over memory.
func promptService(t testing.TB, pool coordinator.Pool) *Service {
	t.Helper()
	s, err := NewService(ServiceConfig{Pool: pool})
	require.NoError(t, err)
	return s
}

// TestPromptGoesOnBehindAPiece: what is stored may begin in a later piece of the hashes.
func TestPromptGoesOnBehindAPiece(t *testing.T) {
	for name, pool := range lookuptest.Pools() {
		s, whole := promptService(t, pool), promptService(t, pool)
		hashes := lookuptest.Chain("piece"+name, 4*memoryPiece, 32)
		for from := 0; from < 4*memoryPiece; from += memoryPiece {
			to := from + memoryPiece
			view := coordinator.NewHashes(hashes[:to*32], 32)
			_, err := s.StorePrompt(t.Context(), api.PromptStore{NumTokens: int64(16 * to), StartToken: int64(16 * from)}, view)
			require.NoError(t, err)
			lookuptest.StorePrefix(t, whole, hashes, to)
			want, err := whole.LookupPrompt(t.Context(), int64(16*to), view)
			require.NoError(t, err)
			require.Positive(t, want.Tokens)
			hit, err := s.LookupPrompt(t.Context(), int64(16*to), view)
			require.NoError(t, err)
			require.Equal(t, want, hit, "%s: %d hashes", name, to)
		}
	}
}

// mambaPool has a full and a mamba group.
func mambaPool(release string) coordinator.Pool {
	return coordinator.Pool{VLLM: release, HashBlockSize: 16, SchedulerBlockSize: 64, Groups: []coordinator.Group{
		{Kind: coordinator.FullAttention, BlockSize: 16}, {Kind: coordinator.Mamba, BlockSize: 64},
	}}
}

// TestStorePromptOfMamba: from 0.29.0 on the states must be named, and hits end with them.
func TestStorePromptOfMamba(t *testing.T) {
	hashes := coordinator.NewHashes(lookuptest.Chain("mamba", 16, 32), 32)
	for _, release := range []string{"0.28.0", "0.29.0", "0.33.0"} {
		t.Run(release, func(t *testing.T) {
			s := promptService(t, mambaPool(release))
			p := api.PromptStore{NumTokens: 256}
			stored, err := s.StorePrompt(t.Context(), p, hashes)
			if release == "0.28.0" {
				require.NoError(t, err)
				require.Equal(t, []int64{16, 4}, stored)
				return
			}
			require.ErrorIs(t, err, api.ErrNoStates)
			require.ErrorContains(t, err, "group 1")
			require.Nil(t, stored)
			require.Zero(t, s.index.Stats().Entries)

			p.States = []api.State{{Group: 1}}
			stored, err = s.StorePrompt(t.Context(), p, hashes)
			require.NoError(t, err)
			require.Equal(t, []int64{16, 0}, stored, "it says that there is none")
			requireHit(t, s, hashes, 0)

			p.States = []api.State{{Group: 1, Tokens: 192}, {Group: 1, Tokens: 64}, {Group: 1, Tokens: 64}}
			stored, err = s.StorePrompt(t.Context(), p, hashes)
			require.NoError(t, err)
			require.Equal(t, []int64{16, 2}, stored)
			requireHit(t, s, hashes, 192)
		})
	}
}

func requireHit(t *testing.T, s *Service, hashes coordinator.Hashes, want int64) {
	t.Helper()
	hit, err := s.LookupPrompt(t.Context(), int64(hashes.Len()*s.pool.HashBlockSize), hashes)
	require.NoError(t, err)
	require.Equal(t, want, hit.Tokens)
}

// TestStorePromptRefusals: what does not fit is refused, and nothing is stored.
func TestStorePromptRefusals(t *testing.T) {
	pool := mambaPool("0.28.0")
	pool.TPSize, pool.NumKVHead = 4, 2
	s := promptService(t, pool)
	hashes := coordinator.NewHashes(lookuptest.Chain("refused", 16, 32), 32)
	twice := make([]coordinator.GroupRank, netproto.MaxRanks+1)
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
		"too many ranks":      {api.PromptStore{NumTokens: 256, Ranks: twice}, api.ErrPrompt, "4097 ranks"},
		"a state behind":      {states(api.State{Group: 1, Tokens: 272}), api.ErrPrompt, "token 272"},
		"a state that is cut": {states(api.State{Group: 1, Tokens: 70}), api.ErrPrompt, "token 70"},
		"a state of 3 tokens": {states(api.State{Group: 1, Tokens: 3}), api.ErrPrompt, "token 3"},
		"not a mamba group":   {states(api.State{Group: 0, Tokens: 64}), api.ErrPrompt, "group 0, which is no mamba group"},
		"no group":            {states(api.State{Group: 2, Tokens: 64}), api.ErrPrompt, "group 2"},
		"a group's number":    {states(api.State{Group: -1, Tokens: 64}), api.ErrPrompt, "32 bits"},
	} {
		t.Run(name, func(t *testing.T) {
			stored, err := s.StorePrompt(t.Context(), tc.p, hashes)
			require.ErrorIs(t, err, tc.want)
			require.ErrorContains(t, err, tc.text)
			require.Nil(t, stored)
			require.Zero(t, s.index.Stats().Entries)
		})
	}
	_, err := s.StorePrompt(t.Context(), api.PromptStore{NumTokens: 256}, coordinator.NewHashes(make([]byte, 100), 65))
	require.ErrorIs(t, err, netproto.ErrHashLen)
	_, err = s.StorePrompt(t.Context(), api.PromptStore{NumTokens: 256}, coordinator.NewHashes(make([]byte, 100), 32))
	require.ErrorIs(t, err, netproto.ErrCutKey)
	stored, err := s.StorePrompt(t.Context(), api.PromptStore{NumTokens: 256, StartToken: math.MaxUint32}, hashes)
	require.NoError(t, err)
	require.Equal(t, []int64{0, 0}, stored, "nothing behind a start beyond the end")
	require.Zero(t, s.index.Stats().Entries)
}

// TestStorePromptLeavesRanksOut: a rank that a group does not have stores the others.
func TestStorePromptLeavesRanksOut(t *testing.T) {
	s := promptService(t, coordinator.Pool{HashBlockSize: 16, TPSize: 4, NumKVHead: 1, VLLM: "0.33.0", Groups: []coordinator.Group{
		{Kind: coordinator.FullAttention, BlockSize: 16}, {Kind: coordinator.Mamba, BlockSize: 16},
	}})
	hashes := coordinator.NewHashes(lookuptest.Chain("ranks", 5, 32), 32) // a hit leaves one to compute
	p := api.PromptStore{NumTokens: 64, States: []api.State{{Group: 1, Tokens: 64}}}
	for rank := range uint16(4) {
		p.Ranks = []coordinator.GroupRank{{TPRank: rank}, {TPRank: rank}}
		stored, err := s.StorePrompt(t.Context(), p, hashes)
		require.NoError(t, err)
		requireHit(t, s, hashes, map[bool]int64{true: 64}[rank == 3])
		require.Equal(t, map[bool][]int64{true: {4, 1}, false: {0, 1}}[rank == 0], stored)
	}
}

// TestStorePromptOnManyRanksIsBounded: 4,096 ranks that are named twice take the memory of as
// many places, and are work.
func TestStorePromptOnManyRanksIsBounded(t *testing.T) {
	s := promptService(t, coordinator.Pool{HashBlockSize: 16, TPSize: 2048, Groups: []coordinator.Group{
		{Kind: coordinator.FullAttention, BlockSize: 16}, {Kind: coordinator.SlidingWindow, BlockSize: 16, SlidingWindow: 64},
	}})
	var p netproto.Prompt
	for i := range netproto.MaxRanks {
		p.AddRank(netproto.Rank{TPRank: uint16(i % 2048)})
	}
	p.NumTokens, p.PromptTokens = 16, netproto.PromptTokensUnknown
	var w PromptWriter
	require.NoError(t, s.BeginStorePrompt(&w, s.coord, &p, 32, 1))
	require.GreaterOrEqual(t, w.Work(), 2*netproto.MaxRanks)
	require.Less(t, w.Held(), 128<<10)
	require.NoError(t, w.Add(t.Context(), lookuptest.Chain("many", 1, 32)))
	require.Equal(t, []int64{1, 1}, w.Stored(nil))
	w.Release()
	require.Less(t, w.Held(), keptWriter, "large buffers are not kept")
}

// TestStorePromptListsParts: if the index has no class for the ranks of a group, the other
// groups are stored, and the error says what is missing.
func TestStorePromptListsParts(t *testing.T) {
	s := promptService(t, coordinator.Pool{HashBlockSize: 16, TPSize: 80, SchedulerBlockSize: 64, Groups: []coordinator.Group{
		{Kind: coordinator.FullAttention, BlockSize: 16}, {Kind: coordinator.SlidingWindow, BlockSize: 16, SlidingWindow: 33},
	}})
	hashes := lookuptest.Chain("parts", 12, 32)
	var w PromptWriter
	require.NoError(t, s.BeginStorePrompt(&w, s.coord, &netproto.Prompt{NumTokens: 192}, 32, 12))
	g := &w.groups[1]
	g.failed = &partFailure{err: index.ErrClasses, first: 0}
	require.NoError(t, w.Add(t.Context(), hashes))
	require.Equal(t, []int64{12, 0}, w.Stored(nil))
	err := w.Err()
	require.ErrorIs(t, err, index.ErrClasses)
	var parts *api.PartsError
	require.ErrorAs(t, err, &parts)
	require.Len(t, parts.Parts, api.MaxParts)
	require.Equal(t, 16, parts.More)
	require.Equal(t, api.Part{Group: 1, TPRank: 3, Chunks: 6, Error: index.ErrClasses.Error()}, parts.Parts[3])
	require.Equal(t, int64(2), g.after(2, 0))
	require.Equal(t, []int64{3, 6, 7, 10}, []int64{g.after(2, 1), g.after(2, 2), g.after(2, 3), g.after(3, 3)})
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
			held, err := s.index.Evict(rank, hashes.At(c), 32)
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
	pool := mambaPool("0.33.0")
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
	require.Len(t, store.Keys, 16+2)
}

// FuzzStorePrompt begins prompts with any numbers, ranks and states, and adds the hashes in
// pieces. Work and memory are bounded by what the request and the pool have, what is stored is
// what the reply says, and a refusal stores nothing.
func FuzzStorePrompt(f *testing.F) {
	f.Add(uint32(256), uint32(0), uint32(math.MaxUint32), uint32(0), []byte{}, []byte{}, uint8(16), uint8(3))
	f.Add(uint32(math.MaxUint32), uint32(math.MaxUint32), uint32(0), uint32(math.MaxUint32), make([]byte, 60), make([]byte, 80), uint8(1), uint8(1))
	f.Add(uint32(640), uint32(256), uint32(300), uint32(15), []byte{0, 1, 0, 0, 0, 0}, []byte{0, 0, 0, 1, 0, 0, 1, 0x40}, uint8(30), uint8(7))
	pool := mambaPool("0.33.0")
	pool.TPSize, pool.RetentionInterval = 2, new(128)
	pool.Groups = append(pool.Groups, coordinator.Group{Kind: coordinator.SlidingWindow, BlockSize: 16, SlidingWindow: 20})
	s, err := NewService(ServiceConfig{Pool: pool})
	require.NoError(f, err)
	chain := lookuptest.Chain("fuzz", 255, 32)
	f.Fuzz(func(t *testing.T, tokens, start, promptTokens, first uint32, ranks, states []byte, numHashes, piece uint8) {
		s.index.Reset()
		before := s.index.Stats().Stored
		p := netproto.Prompt{
			NumTokens: tokens, StartToken: start, PromptTokens: promptTokens, FirstHash: first,
			Ranks: ranks[:len(ranks)/6*6], States: states[:len(states)/8*8],
		}
		n := max(1, int(numHashes))
		var w PromptWriter
		err := s.BeginStorePrompt(&w, s.coord, &p, 32, n)
		require.Less(t, w.Work(), 1000+100*(p.NumRanks()+p.NumStates()))
		require.Less(t, w.Held(), 8<<10+64*(len(ranks)+len(states)))
		if err != nil {
			require.Zero(t, s.index.Stats().Entries)
			return
		}
		for rest := chain[:n*32]; len(rest) > 0; {
			some := min(len(rest), 32*max(1, int(piece)))
			require.NoError(t, w.Add(t.Context(), rest[:some]))
			rest = rest[some:]
		}
		require.NoError(t, w.Err())
		sum := int64(0)
		for i, stored := range w.Stored(nil) {
			require.LessOrEqual(t, stored, int64(n))
			sum += stored * int64(len(w.groups[i].places)) // groups differ, so no key is stored twice at a place
		}
		require.Equal(t, sum, s.index.Stats().Stored-before)
	})
}

// TestStorePromptGoesOnAtAnyToken: a prompt that grows by any number of tokens names as its start
// what was computed before. What is stored is what one store of all of it stores.
func TestStorePromptGoesOnAtAnyToken(t *testing.T) {
	pool := mambaPool("0.28.0")
	pool.Groups = append(pool.Groups, coordinator.Group{Kind: coordinator.SlidingWindow, BlockSize: 32, SlidingWindow: 40})
	hashes := coordinator.NewHashes(lookuptest.Chain("any token", 100, 32), 32)
	whole := promptService(t, pool)
	want, err := whole.StorePrompt(t.Context(), api.PromptStore{NumTokens: 1600}, hashes)
	require.NoError(t, err)
	for seed := range uint64(20) {
		s, r := promptService(t, pool), rand.New(rand.NewPCG(seed, 1))
		sum := make([]int64, len(want))
		for from := int64(0); from < 1600; {
			to := min(from+1+r.Int64N(300), 1600)
			stored, err := s.StorePrompt(t.Context(), api.PromptStore{NumTokens: to, StartToken: from}, hashes)
			require.NoError(t, err)
			for g := range sum {
				sum[g] += stored[g]
			}
			from = to
		}
		require.Equal(t, want, sum, "seed %d", seed)
		requireHit(t, s, hashes, 1536)
	}
}
