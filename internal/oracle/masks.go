package oracle

// Mask has an entry for each chunk. All is set for the reference's all-True sentinel.
type Mask struct {
	All     bool
	Entries []bool // all true if All
}

// StoreMask returns the chunks that the worker stores. aligned is the length in tokens. start
// is the first token, 0 at revisions without one. promptTokens may be nil.
func (p *Pool) StoreMask(aligned, start int, promptTokens *int) (masks []Mask, class string) {
	defer recoverException(&class)
	if aligned%p.alignment() != 0 {
		panic(exception(assertionError))
	}
	if p.Revision == Rev20260604 {
		return p.repeatedMasks(aligned), ""
	}
	return p.masks(aligned, start, p.RetentionInterval, promptTokens), ""
}

// LookupMask returns the chunks that a lookup asks for. aligned is the length in tokens.
func (p *Pool) LookupMask(aligned int) (masks []Mask, class string) {
	defer recoverException(&class)
	if aligned%p.alignment() != 0 {
		panic(exception(assertionError))
	}
	return p.masks(aligned, 0, nil, nil), ""
}

// loadMask returns the chunks that a hit of tokens tokens must load.
func (p *Pool) loadMask(hashes, tokens int) (masks [][]bool, class string) {
	_, masks, class = p.FindHit(nil, hashes, tokens, false)
	return masks, class
}

// masks applies the keep rule of each group to the chunks from start to aligned.
func (p *Pool) masks(aligned, start int, interval, promptTokens *int) []Mask {
	masks := make([]Mask, len(p.Groups))
	for g, group := range p.Groups {
		end := floorDiv(aligned, group.BlockSize)
		first := min(end, max(0, ceilDiv(start, group.BlockSize)))
		if p.Revision == Rev20260620 {
			first = 0
		}
		keep := p.keepRule(g, interval, promptTokens)
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

// keepRule returns the rule that selects the chunks of a group, nil if all are kept.
func (p *Pool) keepRule(g int, interval, promptTokens *int) func(chunk int) bool {
	group := p.Groups[g]
	switch {
	case group.window():
		return p.keepWindow(g, interval, promptTokens)
	case group.Kind == "mamba" && interval != nil && p.Revision == Rev20260817:
		return p.keepState(group, *interval, promptTokens)
	}
	return nil
}

// keepWindow keeps the windows before segment ends and before the end of the prompt.
func (p *Pool) keepWindow(g int, interval, promptTokens *int) func(chunk int) bool {
	group := p.Groups[g]
	shift := 0
	if p.eagleInMasks(g) {
		shift = 1
	}
	windowChunks := ceilDiv(group.SlidingWindow-1, group.BlockSize) + shift
	segment := p.SchedulerBlockSize
	if interval != nil {
		segment = *interval
	}
	perSegment := segment / group.BlockSize
	if segment != 0 && windowChunks >= perSegment {
		return nil
	}
	end := -1
	if interval != nil && promptTokens != nil {
		end = floorDiv(*promptTokens-1, p.SchedulerBlockSize)*p.SchedulerBlockSize/group.BlockSize + shift
	}
	return func(i int) bool {
		tail := segment != 0 && i >= shift && (i-shift)%perSegment >= perSegment-windowChunks
		return tail || i >= end-windowChunks && i < end
	}
}

// eagleInMasks reports whether masks treat a group as an eagle group.
func (p *Pool) eagleInMasks(g int) bool {
	flags := p.eagleFlags()
	if p.Revision != Rev20260817 {
		return flags[g]
	}
	for h := range p.Groups {
		if flags[h] && p.Groups[h].spec() == p.Groups[g].spec() {
			return true
		}
	}
	return false
}

// keepState keeps every state at the end of an interval, and the last one of the prompt.
func (p *Pool) keepState(group Group, interval int, promptTokens *int) func(chunk int) bool {
	perInterval := interval / group.BlockSize
	if interval != 0 && perInterval <= 1 {
		return nil
	}
	last := -1
	if promptTokens != nil {
		last = floorDiv(*promptTokens-1, p.SchedulerBlockSize)*p.SchedulerBlockSize/group.BlockSize - 1
	}
	return func(i int) bool { return interval != 0 && (i+1)%perInterval == 0 || i == last }
}

// repeatedMasks returns the store masks of 2026-06-04: the mask of one scheduler block,
// repeated.
func (p *Pool) repeatedMasks(aligned int) []Mask {
	masks := make([]Mask, len(p.Groups))
	if aligned <= 0 {
		return masks
	}
	dense := true
	for _, a := range p.attentionGroups() {
		dense = dense && (a.full() || a.BlockSize == p.SchedulerBlockSize)
	}
	if dense {
		for g, group := range p.Groups {
			for range aligned / group.BlockSize {
				masks[g].Entries = append(masks[g].Entries, true)
			}
		}
		return masks
	}
	_, blockMasks, class := p.FindHit(nil, p.SchedulerBlockSize/p.HashBlockSize, p.SchedulerBlockSize, true)
	if class != "" {
		panic(exception(class))
	}
	for g := range masks {
		for range aligned / p.SchedulerBlockSize {
			masks[g].Entries = append(masks[g].Entries, blockMasks[g]...)
		}
	}
	return masks
}
