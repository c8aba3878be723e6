package oracle

// Mask has an entry for each chunk. All is set for the reference's all-True sentinel.
type Mask struct {
	All     bool
	Entries []bool // all true if All
}

// StoreMask returns the chunks that the worker stores. aligned is the length in tokens. start
// is the first token, 0 at releases without one. promptTokens may be nil.
func (p *Pool) StoreMask(aligned, start int, promptTokens *int) (masks []Mask, class string) {
	defer recoverException(&class)
	if aligned%p.alignment() != 0 {
		panic(exception(assertionError))
	}
	r := &reach{pool: p, storing: true, interval: p.RetentionInterval}
	if r.interval != nil && promptTokens != nil {
		r.replays = p.replayBoundaries(*promptTokens)
	}
	return r.masks(aligned, start), ""
}

// LookupMask returns the chunks that a lookup asks for. aligned is the length in tokens.
func (p *Pool) LookupMask(aligned int) (masks []Mask, class string) {
	defer recoverException(&class)
	if aligned%p.alignment() != 0 {
		panic(exception(assertionError))
	}
	return (&reach{pool: p}).masks(aligned, 0), ""
}

// LoadMask returns the chunks that a hit of tokens tokens must load.
func (p *Pool) LoadMask(tokens, hashes int) (masks [][]bool, class string) {
	_, masks, class = p.FindHit(nil, hashes, tokens, false)
	return masks, class
}

// replayBoundaries returns where the prompt can be continued, in tokens, at ends of scheduler
// blocks.
func (p *Pool) replayBoundaries(promptTokens int) []int {
	end := func(tokens int) int { return floorDiv(tokens, p.SchedulerBlockSize) * p.SchedulerBlockSize }
	for _, eagle := range p.eagleFlags() {
		if eagle && p.since("0.32.0") {
			return []int{
				max(0, end(promptTokens-1)-p.SchedulerBlockSize),
				max(0, end(promptTokens)-p.SchedulerBlockSize),
			}
		}
	}
	return []int{end(promptTokens - 1)}
}

// reach is one call of reachable_block_mask for all groups.
type reach struct {
	pool     *Pool
	storing  bool  // a store mask, not a lookup mask
	interval *int  // retention interval, nil in lookup masks
	replays  []int // where the prompt can be continued
}

// keepRule reports whether a chunk is kept. Nil keeps all.
type keepRule func(chunk int) bool

// masks applies the rule of each group to the chunks from start to aligned.
func (r *reach) masks(aligned, start int) []Mask {
	masks := make([]Mask, len(r.pool.Groups))
	for g, group := range r.pool.Groups {
		end := floorDiv(aligned, group.BlockSize)
		first := min(end, max(0, ceilDiv(start, group.BlockSize)))
		if !r.pool.since("0.25.0") {
			first = 0
		}
		keep := r.rule(g)
		if keep != nil && end < first {
			panic(exception(assertionError)) // a list cannot have a negative length
		}
		masks[g].All = keep == nil
		for i := first; i < end; i++ {
			masks[g].Entries = append(masks[g].Entries, keep == nil || keep(i))
		}
	}
	return masks
}

// rule returns the rule of a group.
func (r *reach) rule(g int) keepRule {
	p, group := r.pool, r.pool.spec(r.pool.Groups[g])
	switch {
	case p.untransferred(g):
		return nil
	case group.window() && p.dropped(g) && p.SchedulerBlockSize%group.BlockSize != 0:
		return nil
	case group.window():
		return r.window(group, p.eagleInMasks(g))
	case group.Kind == "mamba":
		return r.mamba(group)
	}
	return nil
}

// window keeps the windows before segment ends and before replay boundaries.
func (r *reach) window(group Group, eagle bool) keepRule {
	shift := 0
	if eagle {
		shift = 1
	}
	windowChunks := ceilDiv(group.SlidingWindow-1, group.BlockSize) + shift
	segment := r.pool.SchedulerBlockSize
	if r.interval != nil {
		segment = *r.interval
	}
	perSegment := segment / group.BlockSize
	if segment != 0 && windowChunks >= perSegment {
		return nil
	}
	return func(i int) bool {
		keep := segment != 0 && i >= shift && (i-shift)%perSegment >= perSegment-windowChunks
		for _, replay := range r.replays {
			end := replay/group.BlockSize + shift
			keep = keep || i >= end-windowChunks && i < end
		}
		return keep
	}
}

// eagleInMasks reports whether masks treat a group as an eagle group.
func (p *Pool) eagleInMasks(g int) bool {
	flags := p.eagleFlags()
	if !p.since("0.27.0") {
		return flags[g]
	}
	for h := range p.Groups {
		if flags[h] && p.spec(p.Groups[h]) == p.spec(p.Groups[g]) {
			return true
		}
	}
	return false
}

// mamba keeps the states at interval ends and at replay boundaries. From 0.29.0 on nothing is
// stored this way.
func (r *reach) mamba(group Group) keepRule {
	switch {
	case r.storing && r.pool.since("0.29.0"):
		return func(int) bool { return false }
	case r.interval == nil || !r.pool.since("0.24.0"):
		return nil
	}
	interval := *r.interval
	perInterval := interval / group.BlockSize
	if interval != 0 && perInterval <= 1 {
		return nil
	}
	return func(i int) bool {
		keep := interval != 0 && (i+1)%perInterval == 0
		for _, replay := range r.replays {
			keep = keep || i == replay/group.BlockSize-1
		}
		return keep
	}
}
