package coordinator

import (
	"math"

	"github.com/hitline/hitline/internal/requesterror"
)

// groupHit is the result of a finder. Its mask is null entries followed by real ones.
type groupHit struct {
	null, real int64 // mask entries
	hit        int64 // tokens
}

// entries returns the length of the mask.
func (f *groupHit) entries() int64 { return f.null + f.real }

// cut shortens the mask to n entries.
func (f *groupHit) cut(n int64) {
	f.null = min(f.null, n)
	f.real = min(f.real, n-f.null)
}

// finderArgs are the arguments of a finder.
type finderArgs struct {
	maxLength int64 // tokens, not negative
	align     int64 // tokens; the hit is a multiple of it
	drop      bool  // eagle: drop the last block found
	present   *span // of this attention group and Presence, updated by the finder
}

// span is a run [from, to) of positions that are set. Finders run once per pass of the
// fixed point. The span remembers a run of ones so that later passes skip it: a window
// can be a million positions long.
type span struct{ from, to int }

// find runs the finder of a's kind. (Reference: find_longest_cache_hit of each single-type
// KV cache manager.)
func (c *Coordinator) find(a *attentionGroup, p *Presence, args finderArgs) (groupHit, error) {
	switch {
	case a.Kind.IsFull():
		return findFull(a, p, args), nil
	case a.Kind.scratch():
		return groupHit{}, nil
	case a.Kind.IsWindow() && c.rules.windowChunks && args.align < a.block:
		return c.findWindowChunks(a, p, args)
	case a.Kind.IsWindow():
		return c.findWindow(a, p, args)
	case a.Kind == ChunkedLocalAttention:
		return c.findChunkedLocal(a, p, args)
	case args.align < a.block:
		return findMambaFineGrained(a, p, args), nil
	}
	return c.findMamba(a, p, args)
}

// trailingAbsent reports whether a's blocks beyond the hashes are absent instead of an
// error. With Presence.Everything they are present.
func (c *Coordinator) trailingAbsent(a *attentionGroup) bool {
	return c.rules.trailingAbsent && a.stride > 1
}

// numKnown returns how many of the leading blocks can be read: those with a hash.
func (c *Coordinator) numKnown(a *attentionGroup, p *Presence, blocks int64) int64 {
	if p.Everything && c.trailingAbsent(a) {
		return min(blocks, math.MaxInt)
	}
	return min(blocks, int64(p.NumHashes/a.stride))
}

// requireKnown is numKnown for the finders that read the last block first: it fails if
// that block has no hash.
func (c *Coordinator) requireKnown(a *attentionGroup, p *Presence, blocks int64) (int, error) {
	numKnown := c.numKnown(a, p, blocks)
	if numKnown < blocks && !c.trailingAbsent(a) {
		return 0, noHashError(a, blocks-1, p)
	}
	return int(numKnown), nil
}

// noHashError is the error of a finder that must read block i, whose hash the request does not have.
func noHashError(a *attentionGroup, i int64, p *Presence) error {
	return requesterror.New(ErrIndexOutOfRange, "hashes %d to %d are missing: group %d (%s) reads block %d; send the hashes of all whole blocks of num_tokens",
		p.NumHashes, i*int64(a.stride)+int64(a.stride)-1, a.members[0], a.Kind, i)
}

// findFull counts cached blocks from the left, at most those with a hash. If hits may
// end inside a block, the last cached hash inside the next block extends the hit.
func findFull(a *attentionGroup, p *Presence, args finderArgs) groupHit {
	v := a.view(p)
	limit := int(min(args.maxLength/a.block, int64(p.NumHashes/a.stride)))
	blocks := v.leadingBlocks(limit, a.chunkPositions)
	hit := int64(blocks) * a.block
	if args.align < a.block {
		first := blocks * a.stride
		end := int(min(args.maxLength/args.align, int64(p.NumHashes), int64(first+a.stride-1)))
		if last := v.lastOne(end - 1); last >= first {
			hit = int64(last+1) * args.align
		}
	}
	if args.drop && hit > 0 {
		hit -= min(args.align, a.block)
	}
	hit -= hit % args.align
	return groupHit{real: ceilDiv(hit, a.block), hit: hit}
}

// findWindow looks from the right for a run of cached blocks as long as the window,
// whose right edge is aligned. A shorter run counts only if it begins at block 0.
func (c *Coordinator) findWindow(a *attentionGroup, p *Presence, args finderArgs) (groupHit, error) {
	if args.align%a.block != 0 {
		return groupHit{}, requesterror.New(ErrPrecondition, "group %d (%s): block_size %d does not divide the alignment %d, which hits inside a block would need",
			a.members[0], a.Kind, a.block, args.align)
	}
	numKnown, err := c.requireKnown(a, p, args.maxLength/a.block)
	if err != nil {
		return groupHit{}, err
	}
	need := a.windowBlocks(args.drop)
	alignBlocks := int(args.align / a.block)
	v := a.view(p)
	f := groupHit{}
	search := runSearch{need: max(1, need), alignBlocks: alignBlocks, chunkPositions: 1, drop: args.drop}
	start, length := search.last(&v, numKnown-1, args.present)
	f.null, f.real = int64(start), int64(length)
	if start == 0 && length < need {
		f.cut(floorTo(f.entries(), int64(alignBlocks)))
	}
	if args.drop && f.entries() > 0 {
		f.cut(floorTo(f.entries()-1, int64(alignBlocks)))
	}
	f.hit = f.entries() * a.block
	return f, nil
}

// findWindowChunks is findWindow in fine-grained mode for blocks larger than the hash
// block. It works on whole chunks, and each of their edges is aligned.
func (c *Coordinator) findWindowChunks(a *attentionGroup, p *Presence, args finderArgs) (groupHit, error) {
	numKnown, err := c.requireKnown(a, p, args.maxLength/a.block)
	if err != nil {
		return groupHit{}, err
	}
	v := a.view(p)
	search := runSearch{need: max(1, a.windowBlocks(args.drop)), alignBlocks: 1, chunkPositions: a.chunkPositions}
	start, length := search.last(&v, numKnown-1, args.present)
	f := groupHit{null: int64(start), real: int64(length)}
	if args.drop && f.entries() > 0 {
		f.cut(f.entries() - 1)
	}
	f.hit = f.entries() * a.block
	return f, nil
}

// lastAbsentBlock is lastGap for blocks of several positions.
func (v *view) lastAbsentBlock(from, i, chunkPositions int, present *span) int {
	if present.from > i || i >= present.to {
		*present = span{i + 1, i + 1}
	}
	for end := max(from, v.firstBlock(chunkPositions)); present.from > end; present.from-- {
		if !v.hasBlock(present.from-1, chunkPositions) {
			return present.from - 1
		}
	}
	present.from = min(present.from, from)
	return -1
}

// dropsBlock reports whether the finder drops the last block that it finds. That of mamba never
// does.
func (a *attentionGroup) dropsBlock() bool { return a.eagle && a.Kind != Mamba }

// windowBlocks returns the number of blocks that the window before a token needs, and one
// more if the last is dropped.
func (g *Group) windowBlocks(drop bool) int {
	need := int(ceilDiv(int64(g.SlidingWindow-1), int64(g.BlockSize)))
	if drop {
		need++
	}
	return need
}

// runSearch is a search for the rightmost run of need present blocks whose end is aligned to
// alignBlocks. With drop, the left edge of its last block is aligned instead. A block has
// chunkPositions positions.
type runSearch struct {
	need, alignBlocks, chunkPositions int
	drop                              bool
}

// last returns the start and length of the run, up to block last. If there is none, it
// returns the run that begins at block 0, which may be shorter or empty.
func (s *runSearch) last(v *view, last int, present *span) (start, length int) {
	edge := 1
	if s.drop {
		edge = 0
	}
	first, noRun := v.firstBlock(s.chunkPositions), -1
	for {
		if s.chunkPositions == 1 {
			last = v.lastOne(last)
		}
		if last < first { // blocks and alignment repeat there: the last period has a run, or none has
			noRun = max(noRun, last-max(int(v.before.period), s.alignBlocks))
		}
		aligned := (last+edge)/s.alignBlocks*s.alignBlocks - edge
		switch {
		case last <= noRun || aligned < 0:
			return 0, 0
		case aligned < last:
			last = aligned // not checked yet: look again from there
		default:
			// Only need blocks are read, however long the run.
			start := last - s.need + 1
			gap := v.lastGap(max(0, start), last, s.chunkPositions, present)
			switch {
			case gap < 0 && start < 0:
				return 0, last + 1
			case gap < 0:
				return start, s.need
			}
			last = gap - 1
		}
	}
}

// lastGap returns the highest absent block in [from, i], or -1. It skips the blocks in present,
// and extends it.
func (v *view) lastGap(from, i, chunkPositions int, present *span) int {
	if chunkPositions == 1 {
		return v.lastZeroSkipping(from, i, present)
	}
	return v.lastAbsentBlock(from, i, chunkPositions, present)
}

// lastZeroSkipping is lastGap for blocks of one position.
func (v *view) lastZeroSkipping(from, i int, present *span) int {
	if present.from > i || i >= present.to {
		*present = span{i + 1, i + 1}
	}
	if from >= present.from {
		return -1
	}
	gap := v.lastZero(from, present.from-1)
	present.from = max(from, gap+1)
	return gap
}

// findChunkedLocal makes the blocks before the current attention chunk null without
// reading them, then counts cached blocks from there.
func (c *Coordinator) findChunkedLocal(a *attentionGroup, p *Presence, args finderArgs) (groupHit, error) {
	if args.drop {
		return groupHit{}, requesterror.New(ErrPrecondition, "group %d: %s cannot be an eagle group", a.members[0], a.Kind)
	}
	if a.block != args.align {
		return groupHit{}, requesterror.New(ErrPrecondition, "group %d: %s needs its block_size %d to equal the alignment %d",
			a.members[0], a.Kind, a.block, args.align)
	}
	blocks := args.maxLength / a.block
	null := floorTo(args.maxLength, int64(a.AttentionChunkSize)) / a.block
	numKnown := c.numKnown(a, p, blocks)
	end := null
	if null < numKnown {
		v := a.view(p)
		if int(null) != args.present.from || int(numKnown) > args.present.to {
			*args.present = span{int(null), v.onesFrom(int(null), int(numKnown))}
		}
		end = min(numKnown, int64(args.present.to))
	}
	if end < blocks && end >= numKnown && !c.trailingAbsent(a) {
		return groupHit{}, noHashError(a, end, p)
	}
	return groupHit{null: null, real: end - null, hit: end * a.block}, nil
}

// findMamba looks from the right for one cached block with an aligned right edge. The
// state in it stands for everything before it.
func (c *Coordinator) findMamba(a *attentionGroup, p *Presence, args finderArgs) (groupHit, error) {
	numKnown, err := c.requireKnown(a, p, args.maxLength/a.block)
	if err != nil {
		return groupHit{}, err
	}
	v := a.view(p)
	search := runSearch{need: 1, alignBlocks: int(args.align / a.block), chunkPositions: 1}
	start, length := search.last(&v, numKnown-1, args.present)
	if length == 0 {
		return groupHit{}, nil
	}
	return groupHit{null: int64(start), real: 1, hit: int64(start+1) * a.block}, nil
}

// findMambaFineGrained is findMamba for hits that may end inside a block: the hit ends
// with the last cached hash, and its block is the one real entry.
func findMambaFineGrained(a *attentionGroup, p *Presence, args finderArgs) groupHit {
	v := a.view(p)
	last := v.lastOne(int(min(args.maxLength/args.align, int64(p.NumHashes))) - 1)
	if last < 0 {
		return groupHit{}
	}
	return groupHit{null: int64(last / a.stride), real: 1, hit: int64(last+1) * args.align}
}

// ceilDiv returns a/b rounded up; a is not negative, b positive.
func ceilDiv(a, b int64) int64 {
	q := a / b
	if a%b != 0 {
		q++
	}
	return q
}

// floorTo returns a rounded down to a multiple of b; a is not negative, b positive.
func floorTo(a, b int64) int64 { return a - a%b }
