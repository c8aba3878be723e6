package coordinator

import "slices"

// The oracle answers for revision 2026-06-20 by reading the rule word for word
// over lists of booleans, one entry at a time. It shares with the fast engine
// the configuration types and nothing else.
type oracle struct {
	pool    Pool
	present [][]bool // by group and chunk; nil: everything is
	hashes  int
}

type oracleGroup struct {
	Group
	members []int
	eagle   bool
}

func oracleFull(k Kind) bool {
	return k == FullAttention || k == MLAAttention || k == SinkFullAttention
}

func oracleWindow(k Kind) bool { return k == SlidingWindow || k == SlidingWindowMLA }

// eagleFlags returns which groups are eagle groups by themselves.
func (o *oracle) eagleFlags() []bool {
	flags := make([]bool, len(o.pool.Groups))
	for g, group := range o.pool.Groups {
		flags[g] = group.IsEagleGroup
	}
	if o.pool.UseEagle && !slices.Contains(flags, true) {
		for g := range flags {
			flags[g] = true
		}
	}
	return flags
}

func (o *oracle) attentionGroups() []oracleGroup {
	flags := o.eagleFlags()
	var full, others []oracleGroup
next:
	for g, group := range o.pool.Groups {
		list := &others
		if oracleFull(group.Kind) {
			list = &full
		}
		for i := range *list {
			h := (*list)[i].Group
			if h.Kind == group.Kind && h.BlockSize == group.BlockSize && h.SlidingWindow == group.SlidingWindow &&
				h.AttentionChunkSize == group.AttentionChunkSize && h.Variant == group.Variant {
				(*list)[i].members = append((*list)[i].members, g)
				(*list)[i].eagle = (*list)[i].eagle || flags[g]
				continue next
			}
		}
		*list = append(*list, oracleGroup{Group: group, members: []int{g}, eagle: flags[g]})
	}
	return append(full, others...)
}

type outOfRange struct{}

// cached tells whether chunk i is stored for every member. Like the reference
// it fails when there is no such chunk.
func (o *oracle) cached(a *oracleGroup, i int) bool {
	if i >= o.hashes/(a.BlockSize/o.pool.HashBlockSize) {
		panic(outOfRange{})
	}
	for _, g := range a.members {
		if o.present != nil && !o.present[g][i] {
			return false
		}
	}
	return true
}

type assertion struct{}

// find runs one finder and returns its mask.
func (o *oracle) find(a *oracleGroup, maxLength int, drop bool, align int) []bool {
	switch {
	case oracleFull(a.Kind):
		return o.findFull(a, maxLength, drop, align)
	case oracleWindow(a.Kind):
		return o.findWindow(a, maxLength, drop, align)
	case a.Kind == ChunkedLocalAttention:
		return o.findLocal(a, maxLength, drop, align)
	}
	mask := make([]bool, maxLength/a.BlockSize)
	for i := len(mask) - 1; i >= 0; i-- {
		if o.cached(a, i) && (i+1)*a.BlockSize%align == 0 {
			mask[i] = true
			return mask[:i+1]
		}
	}
	return nil
}

func (o *oracle) findFull(a *oracleGroup, maxLength int, drop bool, align int) []bool {
	var mask []bool
	for i := 0; i < maxLength/a.BlockSize && i < o.hashes/(a.BlockSize/o.pool.HashBlockSize); i++ {
		if !o.cached(a, i) {
			break
		}
		mask = append(mask, true)
	}
	if drop && len(mask) > 0 {
		mask = mask[:len(mask)-1]
	}
	return trimUnaligned(mask, a.BlockSize, align)
}

func trimUnaligned(mask []bool, block, align int) []bool {
	for len(mask)*block%align != 0 {
		mask = mask[:len(mask)-1]
	}
	return mask
}

func (o *oracle) findWindow(a *oracleGroup, maxLength int, drop bool, align int) []bool {
	block := a.BlockSize
	need := (a.SlidingWindow - 1 + block - 1) / block
	if drop {
		need++
	}
	mask := make([]bool, maxLength/block)
	run, matched := 0, false
	for i := len(mask) - 1; i >= 0 && !matched; i-- {
		if !o.cached(a, i) {
			run = 0
			continue
		}
		edge := (i + 1) * block
		if drop {
			edge = i * block
		}
		if run == 0 && block != align && edge%align != 0 {
			continue
		}
		mask[i] = true
		run++
		if run >= need {
			mask = mask[:i+run]
			matched = true
		}
	}
	if !matched {
		mask = mask[:run]
		if block != align {
			mask = trimUnaligned(mask, block, align)
		}
	}
	if drop && len(mask) > 0 {
		mask = mask[:len(mask)-1]
		if block != align {
			mask = trimUnaligned(mask, block, align)
		}
	}
	return mask
}

func (o *oracle) findLocal(a *oracleGroup, maxLength int, drop bool, align int) []bool {
	if drop || a.BlockSize != align {
		panic(assertion{})
	}
	start := maxLength / a.AttentionChunkSize * a.AttentionChunkSize
	mask := make([]bool, start/a.BlockSize)
	for i := len(mask); i < maxLength/a.BlockSize; i++ {
		if !o.cached(a, i) {
			break
		}
		mask = append(mask, true)
	}
	return mask
}

// findHit returns the hit, the mask of each group, and the class of the error.
func (o *oracle) findHit(maxLength int, applyEagle bool) (hit int, masks [][]bool, class string) {
	defer func() {
		switch r := recover(); r {
		case nil:
		case outOfRange{}:
			class = "IndexError"
		case assertion{}:
			class = "AssertionError"
		default:
			panic(r)
		}
	}()
	groups := o.attentionGroups()
	found := make([][]bool, len(groups))
	if len(groups) == 1 {
		a := &groups[0]
		found[0] = o.find(a, maxLength, applyEagle && a.eagle, a.BlockSize)
		hit = len(found[0]) * a.BlockSize
	} else {
		hit = o.findCommon(groups, found, maxLength, applyEagle)
	}
	masks = make([][]bool, len(o.pool.Groups))
	for i, a := range groups {
		for _, g := range a.members {
			masks[g] = found[i]
		}
	}
	return hit, masks, ""
}

func (o *oracle) findCommon(groups []oracleGroup, found [][]bool, maxLength int, applyEagle bool) int {
	hit, align := maxLength, o.pool.SchedulerBlockSize
	done, verified := make([]bool, len(groups)), make([]bool, len(groups))
	for {
		cur := hit
		for i := range groups {
			a := &groups[i]
			if oracleFull(a.Kind) && done[i] {
				cur = cur / a.BlockSize * a.BlockSize
				continue
			}
			drop := applyEagle && a.eagle && !verified[i]
			bound := cur
			if drop {
				bound = min(cur+a.BlockSize, maxLength)
			}
			found[i] = o.find(a, bound, drop, align)
			done[i] = true
			length := len(found[i]) * a.BlockSize
			if drop {
				verified[i] = true
			} else if length < cur {
				clear(verified)
			}
			cur = length
		}
		if cur >= hit {
			break
		}
		hit = cur
		if len(groups) == 2 && oracleFull(groups[0].Kind) {
			break
		}
	}
	if oracleFull(groups[0].Kind) {
		found[0] = found[0][:min(len(found[0]), hit/groups[0].BlockSize)]
	}
	return hit
}

// kept returns the entries of a store mask (promptTokens nil: not given) or,
// with interval and prompt nil, a lookup mask. all is the sentinel.
func (o *oracle) kept(g, aligned int, interval, promptTokens *int) (mask []bool, all bool) {
	group := o.pool.Groups[g]
	if !oracleWindow(group.Kind) {
		return nil, true
	}
	shift := 0
	if o.eagleFlags()[g] {
		shift = 1
	}
	block, sched := group.BlockSize, o.pool.SchedulerBlockSize
	need := (group.SlidingWindow-1+block-1)/block + shift
	mask = make([]bool, aligned/block)
	segment := sched
	if interval != nil {
		segment = *interval
	}
	if segment != 0 {
		per := segment / block
		if need >= per {
			return nil, true
		}
		for i := range mask {
			mask[i] = i >= shift && (i-shift)%per >= per-need
		}
	}
	if interval != nil && promptTokens != nil {
		// Repeated addition instead of a division that rounds to zero.
		latest := -sched
		for latest+sched <= *promptTokens-1 {
			latest += sched
		}
		end := latest/block + shift
		for i := max(0, end-need); i < min(len(mask), end); i++ {
			mask[i] = true
		}
	}
	return mask, false
}
