package lookup

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/internal/oracle"
	"github.com/hitline/hitline/lookup/api"
)

// TestStorePromptAgainstTheOracle stores prompts that grow, of random pools, over memory and
// over a backend. Lookups of all kinds must then find what the oracle finds in a store that
// has the keys of the oracle's masks, and the store must have these keys and no other.
func TestStorePromptAgainstTheOracle(t *testing.T) {
	pools := uint64(3000)
	if lookuptest.Race || testing.Short() {
		pools = 300
	}
	var hits, refused int64
	for seed := uint64(1); seed <= pools && !t.Failed(); seed++ {
		p := newStoredPrompt(t, seed)
		if p == nil {
			continue
		}
		for range 1 + p.IntN(4) {
			if !p.storeSome() {
				refused++
			}
			p.lookup(p.n)
			p.checkLoad()
		}
		if p.found {
			hits++
		}
		p.checkKeys()
	}
	t.Logf("%d pools, %d with hits, %d stores refused", pools, hits, refused)
	require.Greater(t, hits, int64(pools/10))
	require.Positive(t, refused)
}

// storedPrompt is a prompt that is stored bit by bit. content is what the oracle says is
// stored.
type storedPrompt struct {
	differential
	n       int                 // hashes
	backend lookuptest.KeyStore // of remote
	stored  int                 // tokens: where the next store begins
	found   bool
}

// newStoredPrompt returns nil for a pool without lookups.
func newStoredPrompt(t *testing.T, seed uint64) *storedPrompt {
	p := &storedPrompt{differential: differential{
		t: t, seed: seed, Rand: rand.New(rand.NewPCG(seed, 22)), explained: map[bool]int64{},
	}}
	p.slow = oracle.RandomPool(p.Rand)
	if p.IntN(3) == 0 {
		interval := p.IntN(4) * p.slow.SchedulerBlockSize
		p.slow.RetentionInterval = &interval
	}
	pool, text := p.pool()
	var err error
	p.coord, err = coordinator.New(pool)
	require.NoError(t, err, "seed %d: %s", seed, text)
	p.setRanks()
	p.service, err = NewService(ServiceConfig{Pool: pool, Memory: index.Config{MaxBytes: index.MinMaxBytes}})
	require.NoError(t, err)
	p.remote, err = NewService(ServiceConfig{Pool: pool, Backend: &p.backend, Remote: patient})
	require.NoError(t, err)
	p.n = 1 + oracle.RandomChainLen(p.Rand, &p.slow)
	p.numbers = map[string]int{}
	for i := range p.n {
		p.hashes = binary.BigEndian.AppendUint64(p.hashes, seed<<16|uint64(i+1)<<4|uint64(p.IntN(16)))
		p.numbers[string(p.hash(i))] = i
	}
	p.content = make(oracle.Content, len(p.slow.Groups))
	for g := range p.slow.Groups {
		for range p.slow.Ranks(g) {
			p.content[g] = append(p.content[g], make([]bool, p.n))
		}
	}
	return p
}

// storeSome stores the next part of the prompt, and reports whether it was not refused.
func (p *storedPrompt) storeSome() bool {
	tokens := min(p.stored+p.IntN(1+p.n*p.slow.HashBlockSize), p.n*p.slow.HashBlockSize)
	request := api.PromptStore{NumTokens: int64(tokens), StartToken: int64(p.stored)}
	end := p.n
	if p.IntN(3) == 0 {
		end = min(p.n, tokens/p.slow.HashBlockSize+p.IntN(2))
	}
	request.FirstHash = p.IntN(1 + p.stored/p.slow.HashBlockSize)
	if p.IntN(12) == 0 { // some hashes may be missing
		end, request.FirstHash = p.IntN(p.n+1), p.IntN(p.n+1)
	}
	if end <= request.FirstHash {
		return true // no hashes
	}
	if p.IntN(2) == 0 {
		request.PromptTokens = int64(1 + p.IntN(2*tokens+1))
	}
	if p.IntN(4) == 0 {
		request.Ranks = p.randomRanks()
	}
	request.States = p.randomStates(request.FirstHash, end)
	want, ok := p.expect(&request, end)
	hashes := coordinator.NewHashes(p.hashes[request.FirstHash*diffHashLen:end*diffHashLen], diffHashLen)
	for _, s := range []*Service{p.service, p.remote} {
		got, err := s.StorePrompt(context.Background(), request, hashes)
		if !ok {
			require.ErrorIs(p.t, err, api.ErrPrompt, "seed %d", p.seed)
			continue
		}
		require.NoError(p.t, err, "seed %d: %+v", p.seed, request)
		require.Equal(p.t, want, got, "seed %d: %+v", p.seed, request)
	}
	if ok && request.Ranks == nil {
		p.stored = tokens / p.alignment() * p.alignment()
	}
	return ok
}

func (p *storedPrompt) alignment() int { return int(p.coord.Alignment()) }

// randomRanks returns some ranks of some groups, perhaps twice.
func (p *storedPrompt) randomRanks() (ranks []coordinator.GroupRank) {
	for range 1 + p.IntN(4) {
		groups := p.slow.StoreGroups()
		all := p.slow.Ranks(groups[p.IntN(len(groups))])
		at := all[p.IntN(len(all))]
		ranks = append(ranks, coordinator.GroupRank{Group: uint16(p.IntN(9)), TPRank: uint16(at.TP), PPRank: uint16(at.PP), PCPRank: uint16(at.PCP)})
	}
	return ranks
}

// randomStates names states of mamba groups whose hashes are there.
func (p *storedPrompt) randomStates(first, end int) (states []api.State) {
	for number, g := range p.slow.StoreGroups() {
		if p.slow.Groups[g].Kind != "mamba" || !p.coord.StoresStates(number) && p.IntN(2) == 0 {
			continue
		}
		states = append(states, api.State{Group: number})
		stride := p.coord.Stride(number)
		for range p.IntN(6) {
			hash := first + p.IntN(end-first)
			if p.IntN(4) > 0 {
				hash = hash/stride*stride + stride - 1 // the end of a block
			}
			if hash < end {
				states = append(states, api.State{Group: number, Tokens: int64((hash + 1) * p.slow.HashBlockSize)})
			}
		}
	}
	return states
}

// expect adds to the content what the oracle says is stored, unless a hash is missing. It
// returns the number of chunks for each store group.
func (p *storedPrompt) expect(request *api.PromptStore, end int) (stored []int64, ok bool) {
	aligned, start := int(request.NumTokens)/p.alignment()*p.alignment(), int(request.StartToken)
	var prompt *int
	if n := int(request.PromptTokens); n > 0 {
		prompt = &n
	}
	masks, class := p.slow.StoreMask(aligned, 0, prompt)
	require.Empty(p.t, class)
	keys := make([][]int, len(p.slow.StoreGroups()))
	ok = true
	for number, g := range p.slow.StoreGroups() {
		block, stride := p.slow.Groups[g].BlockSize, p.coord.Stride(number)
		for i, kept := range masks[g].Entries {
			hash := i*stride + stride - 1
			if !kept || (i+1)*block <= start || len(p.ranksOf(g, request)) == 0 {
				continue
			}
			keys[number] = append(keys[number], hash)
			ok = ok && request.FirstHash <= hash && hash < end
		}
	}
	for _, state := range request.States {
		if hash := int(state.Tokens)/p.slow.HashBlockSize - 1; hash >= 0 {
			keys[state.Group] = append(keys[state.Group], hash)
		}
	}
	if !ok {
		return nil, false
	}
	for number, g := range p.slow.StoreGroups() {
		distinct := map[int]bool{}
		for _, rank := range p.ranksOf(g, request) {
			for _, hash := range keys[number] {
				p.content[g][rank][hash], distinct[hash] = true, true
			}
		}
		stored = append(stored, int64(len(distinct)))
	}
	return stored, true
}

// ranksOf returns the ranks of a group that the request names, as indexes of its Ranks.
func (p *storedPrompt) ranksOf(g int, request *api.PromptStore) (indexes []int) {
	for i, rank := range p.slow.Ranks(g) {
		named := len(request.Ranks) == 0
		for _, r := range request.Ranks {
			named = named || int(r.TPRank) == rank.TP && int(r.PPRank) == rank.PP && int(r.PCPRank) == rank.PCP
		}
		if named {
			indexes = append(indexes, i)
		}
	}
	return indexes
}

// checkLoad wants every block stored that a hit must load.
func (p *storedPrompt) checkLoad() {
	tokens := int64(p.n * p.slow.HashBlockSize)
	hit, err := p.service.LookupPrompt(context.Background(), tokens, coordinator.NewHashes(p.hashes, diffHashLen))
	if err != nil || hit.Tokens == 0 {
		return
	}
	p.found = true
	for number := range p.coord.NumGroups() {
		if p.coord.IsEagle(number) && p.coord.Group(number).Kind == coordinator.Mamba {
			return // it looks ahead, and the reference may then find more than the others have
		}
	}
	masks, err := p.coord.LoadMask(hit.Tokens, p.n)
	require.NoError(p.t, err, "seed %d", p.seed)
	for number, g := range p.slow.StoreGroups() {
		stride := p.coord.Stride(number)
		if p.coord.IsEagle(number) && p.coord.Group(number).SlidingWindow == 1 {
			continue // the reference then keeps only the block that a hit drops
		}
		for i := range masks[g].Len() {
			if !masks[g].At(i) {
				continue
			}
			first, last := int(i)*stride+stride-1, int(i)*stride+stride-1
			if end := int(hit.Tokens) / p.slow.HashBlockSize; p.coord.FineGrained() && last >= end-1 {
				first, last = end-1, min(last, p.n-1) // a hit may end inside of it
			}
			held := false
			for hash := first; hash <= last; hash++ {
				held = held || p.everywhere(g, hash)
			}
			require.True(p.t, held, "seed %d: a hit of %d tokens, group %d, chunk %d", p.seed, hit.Tokens, number, i)
		}
	}
}

// everywhere reports whether all ranks of a group hold the key of a hash.
func (p *storedPrompt) everywhere(g, hash int) bool {
	for rank := range p.slow.Ranks(g) {
		if !p.content[g][rank][hash] {
			return false
		}
	}
	return true
}

// checkKeys compares what is stored with the content, key by key.
func (p *storedPrompt) checkKeys() {
	want := map[string]bool{}
	for number, g := range p.slow.StoreGroups() {
		for rank, at := range p.slow.Ranks(g) {
			place, err := p.service.ranks.place(coordinator.GroupRank{Group: uint16(number), TPRank: uint16(at.TP), PPRank: uint16(at.PP), PCPRank: uint16(at.PCP)})
			require.NoError(p.t, err)
			for i, held := range p.content[g][rank] {
				if held {
					want[p.coord.KeyPrefix(number, p.coord.Ranks(number)[rank])+hex.EncodeToString(p.hash(i))] = true
				}
				n, err := p.service.memory.index.Evict(place, p.hash(i), diffHashLen)
				require.NoError(p.t, err)
				require.Equal(p.t, held, n == 1, "seed %d: group %d, hash %d, rank %d", p.seed, number, i, rank)
			}
		}
	}
	require.Zero(p.t, p.service.memory.index.Stats().Entries, "seed %d: nothing else is stored", p.seed)
	got := p.backend.Keys
	if got == nil {
		got = map[string]bool{}
	}
	require.Equal(p.t, want, got, "seed %d", p.seed)
}
