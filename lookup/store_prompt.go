package lookup

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/lookup/api"
)

// StorePrompt stores the blocks of a prompt that the rules of the pool keep, on all ranks that
// p names, in every group. hashes are the block hashes of the prompt from p.FirstHash on,
// borrowed until it returns. It returns for each store group how many chunks, states included,
// all ranks hold.
//
// It checks everything before it stores anything. It fails with api.ErrPrompt if a hash is
// missing or a state does not fit, with api.ErrNoStates, with ErrGroupRank for a rank that no
// group has, and for hashes as Store does. If only some parts could be stored the error is an
// *api.PartsError, and if none could, that of the first. Over a backend it waits for at most
// RemoteConfig.WriteTimeout.
func (s *Service) StorePrompt(ctx context.Context, p api.PromptStore, hashes coordinator.Hashes) (stored []int64, err error) {
	return s.StorePromptTelling(ctx, p, hashes, nil)
}

// StorePromptTelling is StorePrompt. It calls stored with the keys that are stored over the memory index, and their places;
// both are borrowed until it returns. nil tells nobody.
func (s *Service) StorePromptTelling(
	ctx context.Context, p api.PromptStore, hashes coordinator.Hashes, stored func(places []int, keys coordinator.Hashes),
) (chunks []int64, err error) {
	if err := checkKeys(hashes); err != nil {
		return nil, err
	}
	w, err := newPromptStore(s, &p, hashes)
	if err != nil {
		return nil, err
	}
	if stored != nil {
		w.tell = stored
	}
	piece := int64(memoryPiece)
	if r := s.remote; r != nil {
		var cancel context.CancelFunc
		ctx, cancel = withTimeout(ctx, r.shared.cfg.WriteTimeout)
		defer cancel()
		piece = writeAtOnce
	}
	for from := w.first; from < w.end; from += piece {
		if err := w.storePiece(ctx, from, min(from+piece, w.end)); err != nil {
			return nil, err
		}
	}
	return w.stored(), w.err()
}

// memoryPiece is how many hashes are stored in one group before the next: their entries are then
// still in the processor's caches.
const memoryPiece = 128

// promptStore is a store of a prompt.
type promptStore struct {
	service    *Service
	hashes     coordinator.Hashes
	first, end int64 // the numbers, in the prompt, of the first hash and of the one after the last
	groups     []promptGroup
	failed     map[int]*promptFailure // by place
	tell       func(places []int, keys coordinator.Hashes)
	anyStored  bool

	// Of one piece and group, for reuse:
	numbers []int64 // of the hashes that are stored, ascending
	keys    []byte  // these hashes
}

// promptGroup is what is stored of one store group.
type promptGroup struct {
	leader int // the group that stores its blocks: its own number, or a lower one
	chunks coordinator.StoredChunks
	stride int64
	places []int
	merged []int   // the places of all groups that it leads, over the memory index
	states []int64 // the numbers of the hashes of states that are no chunks, ascending
	named  bool    // the request says which states it has
	writer index.Writer
	stored int64 // chunks and states that all places hold
}

// promptFailure is why a place does not hold all of its group.
type promptFailure struct {
	err        error
	firstChunk int64 // that it does not hold
	chunks     int64 // and states
}

// newPromptStore checks all of a request.
func newPromptStore(s *Service, p *api.PromptStore, hashes coordinator.Hashes) (*promptStore, error) {
	if err := checkNumbers(p); err != nil {
		return nil, err
	}
	promptTokens := p.PromptTokens
	if promptTokens == 0 {
		promptTokens = coordinator.NoPrompt
	}
	chunks, err := s.coord.StoredChunks(nil, p.NumTokens, p.StartToken, promptTokens)
	if err != nil {
		return nil, err
	}
	w := &promptStore{
		service: s, hashes: hashes, first: int64(p.FirstHash), end: int64(p.FirstHash) + int64(hashes.Len()),
		failed: map[int]*promptFailure{}, tell: func([]int, coordinator.Hashes) {},
	}
	for g := range chunks {
		w.groups = append(w.groups, promptGroup{leader: g, chunks: chunks[g], stride: int64(s.coord.Stride(g))})
	}
	if err := w.setPlaces(p.Ranks); err != nil {
		return nil, err
	}
	if err := w.setStates(p.States); err != nil {
		return nil, err
	}
	if s.remote == nil {
		w.mergeGroups()
	}
	return w, w.checkHashes()
}

// checkNumbers refuses numbers that no prompt has: more than 32 bits, as on the wire.
func checkNumbers(p *api.PromptStore) error {
	for _, f := range [...]struct {
		name string
		n    int64
	}{
		{"num_tokens", p.NumTokens}, {"start_token", p.StartToken},
		{"prompt_tokens", p.PromptTokens}, {"first_hash", int64(p.FirstHash)},
	} {
		if f.n < 0 || f.n > math.MaxUint32 {
			return fmt.Errorf("%w: %s %d does not fit 32 bits", api.ErrPrompt, f.name, f.n)
		}
	}
	return nil
}

// setPlaces sets the places of each group.
func (w *promptStore) setPlaces(named []coordinator.GroupRank) error {
	s := w.service
	if len(named) == 0 {
		for g, places := range s.places {
			w.groups[g].places = places
		}
		return nil
	}
	var offsets []int // of the places in their groups
	for _, at := range named {
		if int(at.TPRank) >= s.ranks.maxTP || int(at.PPRank) >= s.ranks.pp || int(at.PCPRank) >= s.ranks.pcp {
			at.Group = uint16(slices.Index(s.ranks.tpRanks, s.ranks.maxTP)) // which has most
			return s.ranks.refusal(at)
		}
		offsets = append(offsets, s.ranks.offset(at))
	}
	slices.Sort(offsets)
	offsets = slices.Compact(offsets)
	for g := range w.groups {
		for _, offset := range offsets {
			if offset < s.ranks.tpRanks[g]*s.ranks.pp*s.ranks.pcp {
				w.groups[g].places = append(w.groups[g].places, g*s.ranks.perGroup()+offset)
			}
		}
	}
	return nil
}

// setStates sets the hashes of the states of each group.
func (w *promptStore) setStates(states []api.State) error {
	c := w.service.coord
	for _, state := range states {
		if state.Group < 0 || state.Group >= len(w.groups) || c.Group(state.Group).Kind != coordinator.Mamba {
			return fmt.Errorf("%w: a state of group %d, which is no mamba group", api.ErrPrompt, state.Group)
		}
		g := &w.groups[state.Group]
		g.named = true
		if state.Tokens == 0 {
			continue
		}
		hashBlock := int64(w.service.pool.HashBlockSize)
		hash := state.Tokens/hashBlock - 1
		if state.Tokens%hashBlock != 0 || hash < w.first || hash >= w.end {
			return fmt.Errorf("%w: the state of group %d at token %d has no hash: it is to end with a hash block of %d tokens, and the request has the hashes %d to %d",
				api.ErrPrompt, state.Group, state.Tokens, hashBlock, w.first, w.end-1)
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
func (w *promptStore) mergeGroups() {
	for i := range w.groups {
		l := &w.groups[i]
		if l.leader != i {
			continue
		}
		l.merged = slices.Clone(l.places)
		for j := i + 1; j < len(w.groups); j++ {
			if g := &w.groups[j]; g.leader == j && l.sameHashes(g) {
				g.leader = i
				l.merged = append(l.merged, g.places...)
			}
		}
	}
}

// sameHashes reports whether two groups store the same hashes.
func (g *promptGroup) sameHashes(other *promptGroup) bool {
	return g.stride == other.stride && g.chunks == other.chunks && len(g.places) > 0 && len(other.places) > 0 &&
		len(g.states) == 0 && len(other.states) == 0
}

// checkHashes refuses a prompt if the hash of a chunk that is to be stored is missing.
func (w *promptStore) checkHashes() error {
	for i := range w.groups {
		g := &w.groups[i]
		if len(g.places) == 0 {
			continue
		}
		chunk, _, ok := g.chunks.Next(0)
		if ok && g.hash(chunk) >= w.first { // it is not before the hashes: is one after them?
			chunk, _, ok = g.chunks.Next(w.end / g.stride)
		}
		if ok {
			return fmt.Errorf("%w: group %d stores chunk %d, whose hash %d is missing: the request has the hashes %d to %d",
				api.ErrPrompt, i, chunk, g.hash(chunk), w.first, w.end-1)
		}
	}
	return nil
}

// hash returns the number of the hash that keys a chunk.
func (g *promptGroup) hash(chunk int64) int64 { return chunk*g.stride + g.stride - 1 }

// storePiece stores what the hashes [from, to) key, in all groups. It fails if nothing more can be
// stored.
func (w *promptStore) storePiece(ctx context.Context, from, to int64) error {
	for i := range w.groups {
		g := &w.groups[i]
		if g.leader != i || len(g.places) == 0 {
			continue
		}
		w.numbers = g.appendNumbers(w.numbers[:0], from, to)
		w.keys = w.keys[:0]
		for _, number := range w.numbers {
			w.keys = append(w.keys, w.hashes.At(int(number-w.first))...)
		}
		switch {
		case len(w.numbers) == 0:
		case w.service.remote != nil:
			w.storeRemote(ctx, g)
		default:
			if err := w.storeMemory(g); err != nil {
				return err
			}
		}
	}
	return nil
}

// appendNumbers appends the numbers of the hashes [from, to) that a group stores, ascending. Pieces
// come in order.
func (g *promptGroup) appendNumbers(dst []int64, from, to int64) []int64 {
	for chunk, end := from/g.stride, to/g.stride; chunk < end; {
		start, stop, ok := g.chunks.Next(chunk)
		if !ok {
			break
		}
		for chunk = start; chunk < min(stop, end); chunk++ {
			dst = append(dst, g.hash(chunk))
		}
	}
	if len(g.states) > 0 && g.states[0] < to {
		for len(g.states) > 0 && g.states[0] < to {
			dst, g.states = append(dst, g.states[0]), g.states[1:]
		}
		slices.Sort(dst)
	}
	return dst
}

// storeMemory stores the keys at the places of a group and of those that it leads.
func (w *promptStore) storeMemory(g *promptGroup) error {
	if f := w.failed[g.merged[0]]; f != nil {
		f.chunks += int64(len(w.numbers))
		return nil
	}
	had := g.writer.Stored()
	err := w.service.memory.index.Store(&g.writer, g.merged, w.keys, w.hashes.HashLen())
	done := g.writer.Stored() - had
	w.tell(g.merged, coordinator.NewHashes(w.keys[:done*w.hashes.HashLen()], w.hashes.HashLen()))
	g.stored += int64(done)
	w.anyStored = w.anyStored || done > 0
	if errors.Is(err, index.ErrClasses) {
		f := w.newFailure(g, done, err)
		for _, place := range g.merged {
			w.failed[place] = f
		}
		return nil
	}
	return markPartlyDone(w.anyStored, err)
}

// storeRemote stores the keys at one place of a group after the other. A place that has failed is
// not asked again.
func (w *promptStore) storeRemote(ctx context.Context, g *promptGroup) {
	all := true
	for _, place := range g.places {
		if f := w.failed[place]; f != nil {
			f.chunks += int64(len(w.numbers))
			all = false
			continue
		}
		err := w.service.remote.storeKeys(ctx, w.service.ranks.groupRank(place), coordinator.NewHashes(w.keys, w.hashes.HashLen()))
		w.anyStored = w.anyStored || err == nil || errors.Is(err, api.ErrPartlyDone)
		if err != nil {
			w.failed[place] = w.newFailure(g, 0, err)
			all = false
		}
	}
	if all {
		g.stored += int64(len(w.numbers))
	}
}

// newFailure returns why places of a group hold only the first done of the keys.
func (w *promptStore) newFailure(g *promptGroup, done int, err error) *promptFailure {
	return &promptFailure{err: err, firstChunk: w.numbers[done] / g.stride, chunks: int64(len(w.numbers) - done)}
}

// stored returns how many chunks, states included, all ranks of each group hold.
func (w *promptStore) stored() (stored []int64) {
	for i := range w.groups {
		stored = append(stored, w.groups[w.groups[i].leader].stored)
	}
	return stored
}

// err returns an *api.PartsError if parts could not be stored, or if none could, the first's error.
func (w *promptStore) err() error {
	var parts api.PartsError
	for i := range w.groups {
		for _, place := range w.groups[i].places {
			f := w.failed[place]
			if f == nil {
				continue
			}
			at := w.service.ranks.groupRank(place)
			parts.Add(api.Part{
				Group: i, TPRank: int(at.TPRank), PPRank: int(at.PPRank), PCPRank: int(at.PCPRank),
				FirstChunk: f.firstChunk, Chunks: f.chunks,
			}, f.err)
		}
	}
	switch {
	case len(parts.Parts) == 0:
		return nil
	case !w.anyStored:
		return parts.Cause
	}
	return &parts
}
