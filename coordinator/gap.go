package coordinator

// findGap sets the gap of a group whose EndTokens is set. v is the group's presence, and
// numKnown the number of its blocks that have a hash and lie in the lookup. Blocks that mask
// leaves out are not looked up.
func (a *attentionGroup) findGap(end *GroupEnd, v *view, args finderArgs, numKnown int64, mask Mask) {
	from, to := a.neededToEndLater(end.EndTokens, args, numKnown, mask)
	if from >= to {
		return
	}
	last := v.lastGap(int(from), int(to-1), a.chunkPositions, new(span))
	if last < 0 {
		return
	}
	_, runEnd, _ := mask.Next(int64(last))
	end.GapStart = v.firstAbsentBlock(from, to, a.chunkPositions)
	end.GapEnd = v.firstPresentBlock(int64(last)+1, min(numKnown, runEnd), a.chunkPositions)
}

// neededToEndLater returns the blocks [from, to) that the group needs to end at the first
// possible end behind end, in tokens. The run is empty if there is none. In fine-grained mode
// only ends of whole blocks count.
func (a *attentionGroup) neededToEndLater(end int64, args finderArgs, numKnown int64, mask Mask) (from, to int64) {
	step := max(args.align, a.block)
	switch {
	case a.Kind.scratch():
		return 0, 0
	case a.Kind.IsWindow():
		return a.windowToEndLater(end, args, numKnown, mask)
	case a.Kind.IsFull():
		end += args.align
		if args.drop {
			end += min(args.align, a.block)
		}
		to = ceilDiv(end, a.block)
	case a.Kind == ChunkedLocalAttention:
		from, to = floorTo(args.maxLength, int64(a.AttentionChunkSize))/a.block, end/a.block+1
	default: // mamba
		to = (floorTo(end, step) + step) / a.block
		from = to - 1
	}
	if to > numKnown {
		return 0, 0
	}
	return from, to
}

// windowToEndLater is neededToEndLater for a sliding window: the first window behind end that
// is looked up in whole.
func (a *attentionGroup) windowToEndLater(end int64, args finderArgs, numKnown int64, mask Mask) (from, to int64) {
	step := max(1, args.align/a.block) // blocks
	need := int64(max(1, a.windowBlocks(args.drop)))
	last := end/a.block + step // last block of the window
	if !args.drop {
		last--
	} else if step > 1 && last+1 < need && last-step <= end/a.block {
		last += step // a run shorter than the window loses one step more
	}
	// The mask and the alignment repeat, so a window that fits fits within two periods.
	for limit := min(numKnown, last+2*mask.rule.period+need); last < limit; {
		from, to = max(0, last+1-need), last+1
		start, runEnd, ok := mask.Next(from)
		switch {
		case !ok:
			return 0, 0
		case start == from && runEnd >= to:
			return from, to
		case start == from:
			start = runEnd
		}
		last += ceilDiv(start-from, step) * step
	}
	return 0, 0
}

// firstPresentBlock returns the first present block in [from, to), to if there is none.
func (v *view) firstPresentBlock(from, to int64, chunkPositions int) int64 {
	if chunkPositions == 1 {
		return int64(v.firstOne(int(from), int(to)))
	}
	for from < to && !v.hasBlock(int(from), chunkPositions) {
		from++
	}
	return from
}
