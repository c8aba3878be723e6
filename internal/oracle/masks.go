package oracle

// Mask is a list of entries, or the sentinel that means all of them.
type Mask struct {
	All     bool
	Entries []bool // also of the sentinel: all true
}

// StoreMask returns which chunks are worth storing. promptTokens is nil where no prompt
// is known; start is 0 at the revisions that know none.
func (p *Pool) StoreMask(aligned, start int, promptTokens *int) (masks []Mask, class string) {
	defer catch(&class)
	if aligned%p.alignment() != 0 {
		panic(raised(AssertionError))
	}
	if p.Revision == Rev20260604 {
		return p.templates(aligned), ""
	}
	return p.masks(aligned, start, p.RetentionInterval, promptTokens), ""
}

// LookupMask returns which chunks a lookup asks for.
func (p *Pool) LookupMask(aligned int) (masks []Mask, class string) {
	defer catch(&class)
	if aligned%p.alignment() != 0 {
		panic(raised(AssertionError))
	}
	return p.masks(aligned, 0, nil, nil), ""
}

// LoadMask returns which chunks a hit of so many tokens must load.
func (p *Pool) LoadMask(hashes, tokens int) (masks [][]bool, class string) {
	_, masks, class = p.FindHit(nil, hashes, tokens, false)
	return masks, class
}

func (p *Pool) masks(aligned, start int, interval, promptTokens *int) []Mask {
	masks := make([]Mask, len(p.Groups))
	for g, group := range p.Groups {
		end := floorDiv(aligned, group.BlockSize)
		first := min(end, max(0, ceilDiv(start, group.BlockSize)))
		if p.Revision == Rev20260620 {
			first = 0
		}
		kept := p.kept(g, interval, promptTokens)
		if kept != nil && end < first {
			panic(raised(AssertionError)) // a list cannot have a negative length
		}
		masks[g].All = kept == nil
		for i := first; i < end; i++ {
			masks[g].Entries = append(masks[g].Entries, kept == nil || kept(i))
		}
	}
	return masks
}

// kept returns which chunks of a group are worth keeping, nil for all.
func (p *Pool) kept(g int, interval, promptTokens *int) func(chunk int) bool {
	group := p.Groups[g]
	switch {
	case group.window():
		return p.keptWindow(g, interval, promptTokens)
	case group.Kind == "mamba" && interval != nil && p.Revision == Rev20260817:
		return p.keptState(group, *interval, promptTokens)
	}
	return nil
}

func (p *Pool) keptWindow(g int, interval, promptTokens *int) func(chunk int) bool {
	group := p.Groups[g]
	shift := 0
	if p.maskEagle(g) {
		shift = 1
	}
	need := ceilDiv(group.SlidingWindow-1, group.BlockSize) + shift
	segment := p.SchedulerBlockSize
	if interval != nil {
		segment = *interval
	}
	per := segment / group.BlockSize
	if segment != 0 && need >= per {
		return nil
	}
	end := -1
	if interval != nil && promptTokens != nil {
		end = floorDiv(*promptTokens-1, p.SchedulerBlockSize)*p.SchedulerBlockSize/group.BlockSize + shift
	}
	return func(i int) bool {
		tail := segment != 0 && i >= shift && (i-shift)%per >= per-need
		return tail || i >= end-need && i < end
	}
}

// maskEagle tells whether masks treat a group as an eagle group.
func (p *Pool) maskEagle(g int) bool {
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

func (p *Pool) keptState(group Group, interval int, promptTokens *int) func(chunk int) bool {
	per := interval / group.BlockSize
	if interval != 0 && per <= 1 {
		return nil
	}
	last := -1
	if promptTokens != nil {
		last = floorDiv(*promptTokens-1, p.SchedulerBlockSize)*p.SchedulerBlockSize/group.BlockSize - 1
	}
	return func(i int) bool { return interval != 0 && (i+1)%per == 0 || i == last }
}

// templates are the store masks of 2026-06-04: the mask of one scheduler block again
// and again.
func (p *Pool) templates(aligned int) []Mask {
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
	_, templates, class := p.FindHit(nil, p.SchedulerBlockSize/p.HashBlockSize, p.SchedulerBlockSize, true)
	if class != "" {
		panic(raised(class))
	}
	for g := range masks {
		for range aligned / p.SchedulerBlockSize {
			masks[g].Entries = append(masks[g].Entries, templates[g]...)
		}
	}
	return masks
}
