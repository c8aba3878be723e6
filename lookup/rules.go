package lookup

import (
	"fmt"
	"math"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/admission"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/netproto"
)

// Answer is a hit, and where the blocks end that the lookup has found.
type Answer struct {
	Hit    api.Hit
	Ending coordinator.Ending
}

// rules are those of the pool of one service, for the numbers of its lookups. Immutable.
type rules struct {
	coord       *coordinator.Coordinator
	pool        coordinator.Pool
	keysPerHash int // over a store, at least one for each group
}

func newRules(coord *coordinator.Coordinator) rules {
	r := rules{coord: coord, pool: coord.Pool()}
	for g := range coord.NumGroups() {
		r.keysPerHash += max(1, len(coord.Ranks(g))/coord.KeyStride(g))
	}
	return r
}

// HasFewKeys reports whether a request about so many bytes of hashes has so few keys that it does not wait for those with many.
func (r *rules) HasFewKeys(hashBytes int) bool {
	return hashBytes*r.keysPerHash <= admission.SmallBytes
}

// alignPrompt rounds numTokens down as vLLM's scheduler does.
func (r *rules) alignPrompt(numTokens int64) int64 {
	return numTokens - max(numTokens, 0)%r.promptAlignment() // Lookup refuses negative ones
}

// promptAlignment returns what the tokens of a Lookup must be a multiple of: 1 from vLLM 0.27.0 on.
func (r *rules) promptAlignment() int64 {
	if r.coord.NeedsAligned() {
		return r.coord.Alignment()
	}
	return 1
}

// checkPrompt returns an error if no prompt has this length or these hashes, or no lookup their start.
func (r *rules) checkPrompt(numTokens int64, hashes coordinator.Hashes) error {
	if numTokens < 0 {
		return fmt.Errorf("%w: num_tokens %d", ErrTokens, numTokens)
	}
	if hashes.HashLen() > netproto.MaxHashLen {
		return ErrHashLen
	}
	return r.coord.CheckStart(hashes.Start(), numTokens)
}

// checkKeys refuses keys that cannot be stored or evicted.
func checkKeys(keys coordinator.Hashes) error {
	switch n := keys.HashLen(); {
	case n < 1 || n > netproto.MaxHashLen:
		return ErrHashLen
	case len(keys.Blob())%n != 0:
		return ErrCutKey
	}
	return nil
}

// Needed returns the number of tokens that a lookup is about, lowered to what the rules can compute
// with, and how many of its numHashes hashes, which begin at token start, can change the answer.
// Lookup, Explain and Plan of numTokens answer the same for the first needed hashes as for all.
// unaligned and start are as for Query.Begin. It fails where the rules refuse the number of tokens.
func (r *rules) Needed(tokens uint64, unaligned bool, start int64, numHashes int) (numTokens int64, needed int, err error) {
	numTokens = r.clampTokens(tokens, unaligned)
	if numTokens == 0 || numHashes == 0 {
		return numTokens, 0, nil // answered 0 before anything is checked
	}
	tokenLen, err := r.coord.TokenLen(numTokens)
	if err != nil {
		return numTokens, 0, err
	}
	needed = r.coord.NeededHashes(tokenLen)
	if r.pool.CapacityOnly { // no key is checked, but misses are counted and explained
		hashBlock := int64(r.pool.HashBlockSize)
		needed = int(min((tokenLen+hashBlock-1)/hashBlock, math.MaxInt))
	}
	needed -= int(start / int64(r.pool.HashBlockSize))
	return numTokens, min(numHashes, max(needed, 0)), nil
}

// clampTokens lowers a number of tokens to what the rules can compute with. No prompt is
// that long. An aligned number stays aligned, any other stays unaligned.
func (r *rules) clampTokens(n uint64, unaligned bool) int64 {
	const maxTokens = math.MaxInt64 / 4
	clamped := int64(min(n, maxTokens))
	if n > maxTokens {
		clamped -= maxTokens % r.coord.Alignment()
	}
	if unaligned && clamped%r.coord.Alignment() == 0 {
		clamped++ // clamping has aligned it
	}
	return clamped
}

// clampPrompt is clampTokens for a number that checkPrompt has accepted.
func (r *rules) clampPrompt(numTokens int64) int64 {
	n := uint64(numTokens)
	return r.clampTokens(n, r.unaligned(n))
}

// unaligned reports whether n is no multiple of the alignment. n is not clamped.
func (r *rules) unaligned(n uint64) bool { return n%uint64(r.coord.Alignment()) != 0 }

// newHit returns the hit of an answer. The wire has 32 bits for a number of tokens. A hit with
// tail boundaries that does not fit is ErrHitRange, as in the reference; any other is rounded
// down to the largest aligned hit that fits.
func (r *rules) newHit(hit coordinator.Hit) (api.Hit, error) {
	if r.coord.HasTailBoundaries() {
		if err := checkRange(hit); err != nil {
			return api.Hit{}, err
		}
		return hit, nil
	}
	if hit.Tokens > math.MaxUint32 {
		hit.Tokens = math.MaxUint32 - math.MaxUint32%r.coord.Alignment()
	}
	return hit, nil
}

// checkRange fails with ErrHitRange if a number of the hit has more than 32 bits.
func checkRange(hit coordinator.Hit) error {
	fits := func(n int64) bool { return n >= 0 && n <= math.MaxUint32 }
	for _, b := range hit.TailBoundaries {
		if !fits(int64(b.Group)) || !fits(b.Tokens) {
			return fmt.Errorf("%w: %d tokens of group %d", ErrHitRange, b.Tokens, b.Group)
		}
	}
	if !fits(hit.Tokens) {
		return fmt.Errorf("%w: %d tokens", ErrHitRange, hit.Tokens)
	}
	return nil
}

// keyPrefixes returns what the keys of a group begin with on each of its ranks.
func (r *rules) keyPrefixes(g int) (prefixes []string) {
	for _, rank := range r.coord.Ranks(g) {
		prefixes = append(prefixes, r.coord.KeyPrefix(g, rank))
	}
	return prefixes
}

// loadMasks returns the load masks of the hit of a prompt, from the start of its hashes on.
func (r *rules) loadMasks(hashes coordinator.Hashes, hit api.Hit) ([]coordinator.Mask, error) {
	if hit.Tokens <= hashes.Start() { // there is nothing to load
		return r.coord.EmptyMasks(), nil
	}
	masks, err := r.coord.LoadMask(hit.Tokens, r.coord.NumHashes(hashes))
	for i := range masks {
		masks[i] = masks[i].From(hashes.Start() / int64(r.pool.Groups[i].BlockSize))
	}
	return masks, err
}

// newMasks returns the masks of all groups of the pool.
func (r *rules) newMasks(masks []coordinator.Mask, err error) ([]api.GroupMask, error) {
	if err != nil {
		return nil, err
	}
	list, runs := make([]api.GroupMask, len(masks)), 0
	for i, m := range masks {
		list[i] = api.GroupMask{Group: r.coord.StoreGroup(i), First: m.First(), End: m.First() + m.Len(), All: m.IsAll()}
		if m.IsAll() {
			continue
		}
		for start, end := range m.Runs() {
			if runs++; runs > api.MaxRuns {
				return nil, ErrTooManyRuns
			}
			list[i].Runs = append(list[i].Runs, api.ChunkRun{Start: m.First() + start, End: m.First() + end})
		}
	}
	return list, nil
}
