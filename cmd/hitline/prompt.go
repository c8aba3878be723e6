package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"math/bits"
	"slices"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup"
)

// prompt is a lookup of an engine's. It shows what keys alone do not: how many tokens
// a hash stands for, and which hashes of a chain are stored.
type prompt struct {
	tokens    int64
	numHashes int
	hashLen   int    // bytes
	hashes    []byte // the first of them, at most promptHashes
}

// promptHashes is how many hashes of a prompt are looked at, and promptKeys how many
// keys they make at most.
const promptHashes, promptKeys = 256, 8192

// promptOf copies what is needed of a lookup.
func promptOf(a lookup.LookupEvent) prompt {
	p := prompt{tokens: a.NumTokens, numHashes: a.NumHashes, hashLen: a.Hashes.HashLen()}
	p.hashes = slices.Clone(a.Hashes.Bytes()[:min(a.Hashes.Len(), promptHashes)*p.hashLen])
	return p
}

// hash returns hash i of a prompt.
func (p prompt) hash(i int) []byte { return p.hashes[i*p.hashLen : (i+1)*p.hashLen] }

// unique returns how many hashes there are in front of the first that occurs twice.
func (p prompt) unique() int {
	n := len(p.hashes) / p.hashLen
	count := map[string]int{}
	for i := range n {
		count[string(p.hash(i))]++
	}
	for i := range n {
		if count[string(p.hash(i))] > 1 {
			return i
		}
	}
	return n
}

// fitsBlockSize tells whether a lookup has as many hashes as its tokens should have.
// Engines send at least the hashes of all tokens that they ask for. Of tokens after
// them, as in the middle of an answer, there may be any number, so only just two times
// as many, or four, or eight, are a sign that a hash stands for fewer tokens.
func (e expected) fitsBlockSize(tokens int64, numHashes int) bool {
	size := int64(e.cfg.Pool.HashBlockSize)
	want, have, rest := tokens/size, int64(numHashes), max(1, e.rules.Alignment()/size)
	if have == 0 || want < 4 {
		return true
	}
	for times := int64(2); times*want <= have && times <= size; times *= 2 {
		if have < times*(want+rest) {
			return false
		}
	}
	return have >= want
}

// compareBlockSize compares the tokens that a hash stands for with those configured.
func (e expected) compareBlockSize(p prompt, f *findings) (fits bool) {
	if e.fitsBlockSize(p.tokens, p.numHashes) {
		return true
	}
	guess := int64(1) << bits.Len64(uint64(p.tokens/int64(p.numHashes+1))) // block sizes are powers of two
	f.problem("a prompt of %d tokens has %d hashes, one for every %d tokens, and pool.hash_block_size is %d: set it to the engine's",
		p.tokens, p.numHashes, guess, e.cfg.Pool.HashBlockSize)
	return false
}

// compareLength compares the length of a prompt's hashes with those in the store.
func (p prompt) compareLength(ours sample, f *findings) (fits bool) {
	lengths := ours.hashLengths()
	if len(lengths) == 0 || slices.Contains(lengths, p.hashLen) {
		return true
	}
	f.problem("a prompt's hashes have %d bytes, and those in the store %s: have all engines of this pool use one hash function (vLLM: --prefix-caching-hash-algo)",
		p.hashLen, listed(lengths))
	return false
}

// held is which hashes of a prompt one group has on one rank.
type held struct {
	rank  coordinator.Rank
	have  []bool
	count int
}

// promptBlocks is which hashes of a prompt the store has, by group, and of each group on
// every rank that any group is described on.
type promptBlocks [][]held

// any tells whether a block of any group is stored.
func (b promptBlocks) any() bool {
	return slices.ContainsFunc(b, func(ranks []held) bool {
		return slices.ContainsFunc(ranks, func(h held) bool { return h.count > 0 })
	})
}

// onRanks returns what group g has on the ranks that it is described on.
func (b promptBlocks) onRanks(rules *coordinator.Coordinator, g int) []held {
	if len(rules.Ranks(g)) == len(b[g]) {
		return b[g]
	}
	return slices.DeleteFunc(slices.Clone(b[g]), func(h held) bool { return !slices.Contains(rules.Ranks(g), h.rank) })
}

// most returns what group g has on that rank, of those that it is described on, which has most.
func (b promptBlocks) most(rules *coordinator.Coordinator, g int) held {
	return slices.MaxFunc(b.onRanks(rules, g), func(x, y held) int { return x.count - y.count })
}

// allRanks returns the ranks of all groups, each once.
func allRanks(rules *coordinator.Coordinator) (all []coordinator.Rank) {
	seen := map[coordinator.Rank]bool{}
	for g := range rules.NumGroups() {
		for _, r := range rules.Ranks(g) {
			if !seen[r] {
				seen[r], all = true, append(all, r)
			}
		}
	}
	return all
}

// blocks asks the store for all of the prompt's hashes of every group, also those that a
// lookup would not ask for. It stops in front of hashes that are equal, because a block
// does not show for which of them it was stored.
func (p prompt) blocks(ctx context.Context, s *store, rules *coordinator.Coordinator) (promptBlocks, error) {
	b, ranks := make(promptBlocks, rules.NumGroups()), allRanks(rules)
	for g := range b {
		var err error
		if b[g], err = p.groupBlocks(ctx, s, rules, g, ranks); err != nil {
			return nil, err
		}
	}
	return b, nil
}

func (p prompt) groupBlocks(ctx context.Context, s *store, rules *coordinator.Coordinator, g int, ranks []coordinator.Rank) ([]held, error) {
	n := min(p.unique(), max(1, promptKeys/len(ranks)))
	var keys []string
	for _, r := range ranks {
		prefix := rules.KeyPrefix(g, r)
		for i := range n {
			keys = append(keys, prefix+hex.EncodeToString(p.hash(i)))
		}
	}
	if n == 0 {
		return nil, nil
	}
	answers, err := s.Exists(ctx, keys)
	if err != nil {
		return nil, err
	}
	if len(answers) != len(keys) {
		return nil, fmt.Errorf("%d answers for %d keys", len(answers), len(keys))
	}
	all := make([]held, len(ranks))
	for r := range ranks {
		all[r] = held{rank: ranks[r], have: make([]bool, n)}
		for i := range n {
			if answers[r*n+i] == 1 {
				all[r].have[i] = true
				all[r].count++
			}
		}
	}
	return all, nil
}

// comparePrompt looks for a prompt's blocks in the store and says how they differ from
// those that pool.groups describes. Unless absent is set it draws no conclusion from
// blocks that are absent, which may have been evicted.
func (e expected) comparePrompt(ctx context.Context, s *store, p prompt, absent bool, f *findings) (promptBlocks, error) {
	b, err := p.blocks(ctx, s, e.rules)
	if err != nil || !b.any() {
		return b, err
	}
	switch {
	case e.compareOrder(e.promptEvidence(b), f):
	case absent && e.compareFullGroups(b, f):
	default:
		e.compareStored(b, f)
	}
	return b, nil
}

// compareFullGroups compares the ranks and the block size of full-attention groups, which
// store every chunk on all their ranks.
func (e expected) compareFullGroups(b promptBlocks, f *findings) (found bool) {
	for g, group := range e.cfg.Pool.Groups {
		if !group.Kind.IsFull() {
			continue // windows and states are stored here and there
		}
		all, most := b.onRanks(e.rules, g), b.most(e.rules, g)
		if none := slices.IndexFunc(all, func(h held) bool { return h.count == 0 }); none >= 0 && most.count >= 4 {
			f.problem("group %d has %d of a prompt's blocks on %s and none on %s: compare pool.tp_size, pp_size, num_kv_head and the others with the engine's",
				g, most.count, rankText(most.rank), rankText(all[none].rank))
			return true
		}
		if e.rules.FineGrained() { // parts of chunks are stored too
			continue
		}
		if step := most.step(); step != 0 && step != e.rules.KeyStride(g) {
			size, or := e.cfg.Pool.HashBlockSize, ""
			if e.rules.NumGroups() > 1 {
				or = ", or give pool.groups the order of the engine's kv_cache_groups"
			}
			f.problem("group %d has a block for every %d tokens of a prompt, and lookups ask for one every %d: set block_size of pool.groups[%d] to the engine's%s",
				g, step*size, e.rules.KeyStride(g)*size, g, or)
			return true
		}
	}
	return false
}

// step returns of how many hashes one is stored, 0 if that cannot be told: at least
// three stand at equal distances from the beginning on, without a gap.
func (h held) step() int {
	first := slices.Index(h.have, true)
	if h.count < 3 {
		return 0
	}
	step := first + 1
	for i, have := range h.have {
		if have && (i+1)%step != 0 || !have && (i+1)%step == 0 && (i+1)/step <= h.count {
			return 0
		}
	}
	return step
}
