package main

import (
	"context"
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
func promptOf(a lookup.Asked) prompt {
	p := prompt{tokens: a.NumTokens, numHashes: a.NumHashes, hashLen: a.Hashes.HashLen()}
	p.hashes = slices.Clone(a.Hashes.Bytes()[:min(a.Hashes.Len(), promptHashes)*p.hashLen])
	return p
}

// hash returns hash i of a prompt.
func (p prompt) hash(i int) []byte { return p.hashes[i*p.hashLen : (i+1)*p.hashLen] }

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

// ask asks the store for the prompt's blocks of a group: all hashes, also those that
// the group would not be asked for.
func (p prompt) ask(ctx context.Context, s *store, rules *coordinator.Coordinator, g int) ([]held, error) {
	ranks := rules.Ranks(g)
	n := min(len(p.hashes)/p.hashLen, max(1, promptKeys/len(ranks)))
	var keys []string
	for r := range ranks {
		for i := range n {
			keys = append(keys, string(rules.AppendKey(nil, g, r, p.hash(i))))
		}
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

// comparePrompt looks for a prompt's blocks in the store and says how they lie
// otherwise than the pool has it. found says that any were there.
func (e expected) comparePrompt(ctx context.Context, s *store, p prompt, f *findings) (found bool, err error) {
	for g := range e.rules.NumGroups() {
		if !e.rules.Pool().Groups[g].Kind.IsFull() {
			continue // windows and states are stored here and there
		}
		all, err := p.ask(ctx, s, e.rules, g)
		if err != nil {
			return found, err
		}
		most := slices.MaxFunc(all, func(a, b held) int { return a.count - b.count })
		if most.count == 0 {
			continue
		}
		found = true
		if none := slices.IndexFunc(all, func(h held) bool { return h.count == 0 }); none >= 0 && most.count >= 4 {
			f.problem("group %d has %d of a prompt's blocks on %s and none on %s: compare pool.tp_size, pp_size, num_kv_head and the others with the engine's",
				g, most.count, rankText(most.rank), rankText(all[none].rank))
			return found, nil
		}
		if step := most.step(); step != 0 && step != e.rules.AskStride(g) {
			size := e.rules.Pool().HashBlockSize
			f.problem("group %d has a block for every %d tokens of a prompt, and lookups ask for one every %d: set block_size of pool.groups[%d] to the engine's",
				g, step*size, e.rules.AskStride(g)*size, g)
			return found, nil
		}
	}
	return found, nil
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
