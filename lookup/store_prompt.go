package lookup

import (
	"context"
	"fmt"
	"slices"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/netproto"
)

// StorePrompt stores the blocks of a prompt that the rules of the pool keep, on all ranks that
// p names, in every group. hashes are the block hashes of the prompt from p.FirstHash on,
// borrowed until it returns. It returns for each store group how many chunks, states included,
// all ranks hold.
//
// It checks everything before it stores anything. It fails with api.ErrPrompt if a hash is
// missing or a state does not fit, with api.ErrNoStates, with ErrGroupRank for a rank that no
// group has, and for hashes as Store does. If parts could not be stored the others are: the
// error is then an *api.PartsError. Over a backend it waits for at most
// RemoteConfig.WriteTimeout.
func (s *Service) StorePrompt(ctx context.Context, p api.PromptStore, hashes coordinator.Hashes) (stored []int64, err error) {
	var request netproto.Prompt
	if err := p.Encode(&request); err != nil {
		return nil, err
	}
	if err := checkKeys(hashes); err != nil {
		return nil, err
	}
	var w PromptWriter
	if err := s.BeginStorePrompt(&w, s.coord, &request, hashes.HashLen(), hashes.Len()); err != nil {
		return nil, err
	}
	if r := s.remote; r != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.cfg.WriteTimeout)
		defer cancel()
	}
	if err := w.Add(ctx, hashes.Bytes()); err != nil {
		return nil, err
	}
	return w.Stored(nil), w.Err()
}

// BeginStorePrompt begins a store of a prompt, whose numHashes hashes of hashLen bytes are
// added to w. rules are those of the pool, with any retention interval. p is only borrowed.
// It checks all of the request: if it fails, as StorePrompt does, nothing is stored. It takes
// time in proportion to the ranks, states and groups.
func (s *Service) BeginStorePrompt(w *PromptWriter, rules *coordinator.Coordinator, p *netproto.Prompt, hashLen, numHashes int) (err error) {
	w.reset(s, hashLen)
	w.next = int64(p.FirstHash)
	w.end = w.next + int64(numHashes)
	promptTokens := int64(p.PromptTokens)
	if p.PromptTokens == netproto.PromptTokensUnknown {
		promptTokens = coordinator.NoPrompt
	}
	w.chunks, err = rules.StoredChunks(w.chunks, int64(p.NumTokens), int64(p.StartToken), promptTokens)
	if err != nil {
		return err
	}
	for g := range w.chunks {
		w.groups = append(w.groups, promptGroup{leader: g, chunks: w.chunks[g], stride: int64(s.coord.Stride(g))})
	}
	w.work = len(w.groups)*groupWork + p.NumRanks()*rankWork + p.NumStates()*stateWork
	if err := w.setPlaces(p); err != nil {
		return err
	}
	if err := w.setStates(p); err != nil {
		return err
	}
	if s.remote == nil {
		w.mergeGroups()
	}
	return w.checkHashes()
}

// Work of a PromptWriter, in units of comparing one hash, beside that of the index.
const (
	groupWork = 16 // what a piece of hashes has of one group
	rankWork  = 16 // checking and sorting a rank
	stateWork = 24 // checking and sorting a state
)

// setPlaces sets the places of each group.
func (w *PromptWriter) setPlaces(p *netproto.Prompt) error {
	s := w.service
	if p.NumRanks() == 0 {
		for g, places := range s.places {
			w.groups[g].places = places
		}
		return nil
	}
	ranks := w.ranks[:0]
	for i := range p.NumRanks() {
		at := coordinator.GroupRank(p.Rank(i))
		if int(at.TPRank) >= s.ranks.maxTP || int(at.PPRank) >= s.ranks.pp || int(at.PCPRank) >= s.ranks.pcp {
			at.Group = uint16(slices.Index(s.ranks.tpRanks, s.ranks.maxTP)) // which has most
			return s.ranks.refusal(at)
		}
		ranks = append(ranks, s.ranks.offset(at))
	}
	slices.Sort(ranks)
	w.ranks = slices.Compact(ranks)
	w.places = slices.Grow(w.places[:0], len(w.ranks)*len(w.groups)) // so that the groups' parts stay
	for g := range w.groups {
		from := len(w.places)
		for _, offset := range w.ranks {
			if offset < s.ranks.tpRanks[g]*s.ranks.pp*s.ranks.pcp {
				w.places = append(w.places, g*s.ranks.perGroup()+offset)
			}
		}
		w.groups[g].places = w.places[from:]
	}
	w.work += len(w.places)
	return nil
}

// setStates sets the hashes of the states of each group, ascending.
func (w *PromptWriter) setStates(p *netproto.Prompt) error {
	c := w.service.coord
	for i := range p.NumStates() {
		group, tokens := p.State(i)
		if int64(group) >= int64(len(w.groups)) || c.Group(int(group)).Kind != coordinator.Mamba {
			return fmt.Errorf("%w: a state of group %d, which is no mamba group", api.ErrPrompt, group)
		}
		g := &w.groups[group]
		g.named = true
		if tokens == 0 {
			continue
		}
		hashBlock := int64(w.service.pool.HashBlockSize)
		hash := int64(tokens)/hashBlock - 1
		if int64(tokens)%hashBlock != 0 || hash < w.next || hash >= w.end {
			return fmt.Errorf("%w: the state of group %d at token %d has no hash: it is to end with a hash block of %d tokens, and the request has the hashes %d to %d",
				api.ErrPrompt, group, tokens, hashBlock, w.next, w.end-1)
		}
		if chunk := (hash + 1) / g.stride; (hash+1)%g.stride != 0 || !g.chunks.Has(chunk-1) {
			g.states = append(g.states, hash)
		}
	}
	for i := range w.groups {
		g := &w.groups[i]
		if c.StoresStates(i) && !g.named {
			return fmt.Errorf("%w: name one of group %d, or say with token 0 that it has none", api.ErrNoStates, i)
		}
		slices.Sort(g.states)
		g.states = slices.Compact(g.states)
	}
	return nil
}

// mergeGroups makes the first of the groups that store the same hashes store those of all of
// them: an entry of the index then changes once. Engines split their layers into groups of equal
// size, so many have equal rules.
func (w *PromptWriter) mergeGroups() {
	w.work += len(w.groups) * len(w.groups)
	for i := range w.groups {
		l := &w.groups[i]
		if l.leader != i {
			continue
		}
		from := len(w.merged)
		w.merged = append(w.merged, l.places...)
		for j := i + 1; j < len(w.groups); j++ {
			if g := &w.groups[j]; g.leader == j && l.storesAs(g) {
				g.leader = i
				w.merged = append(w.merged, g.places...)
			}
		}
		l.merged = w.merged[from:]
	}
}

// storesAs reports whether two groups store the same hashes.
func (g *promptGroup) storesAs(other *promptGroup) bool {
	return g.stride == other.stride && g.chunks == other.chunks && len(g.places) > 0 && len(other.places) > 0 &&
		len(g.states) == 0 && len(other.states) == 0
}

// checkHashes refuses a prompt if the hash of a chunk that is to be stored is missing.
func (w *PromptWriter) checkHashes() error {
	for i := range w.groups {
		g := &w.groups[i]
		if len(g.places) == 0 {
			continue
		}
		chunk, _, ok := g.chunks.Next(0)
		if ok && g.hash(chunk) >= w.next { // it is not in front of the hashes: is one behind them?
			chunk, _, ok = g.chunks.Next(w.end / g.stride)
		}
		if ok {
			return fmt.Errorf("%w: group %d stores chunk %d, whose hash %d is missing: the request has the hashes %d to %d",
				api.ErrPrompt, i, chunk, g.hash(chunk), w.next, w.end-1)
		}
	}
	return nil
}
