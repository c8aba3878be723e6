package tokens

// known is what was known of a prompt before its request: its leading blocks up to a place that lies between two samples.
type known struct {
	atLeast, atMost int       // blocks; equal if the samples lie close
	weights         []weighed // of the samples that were known, if atLeast and atMost differ
}

// weighed is a known sample that stands for some blocks around it, which are not tracked.
type weighed struct {
	block  int
	weight float64
}

// knownBlocks returns what is known of the blocks of an ask. Who asked for a block had the blocks before it, too.
func (a *Account) knownBlocks(r *Event, samples []sample) (k known) {
	k.atMost = r.firstBlock() + r.sampled
	for i := len(samples) - 1; i >= 0; i-- {
		s := samples[i]
		if !a.table.judges(s.fingerprint) {
			continue
		}
		if a.table.get(s.fingerprint) != nil {
			k.atLeast = s.block + 1
			break
		}
		k.atMost = s.block
	}
	for _, s := range samples {
		if k.atLeast < k.atMost && s.block < k.atLeast && a.table.judges(s.fingerprint) {
			k.weights = append(k.weights, weighed{s.block, a.weight(r, s.block)})
		}
	}
	return k
}

// weight returns how many blocks a judged sample stands for.
func (a *Account) weight(r *Event, block int) float64 {
	return r.chosenOf(block) / share(a.table.judged)
}

// chosenOf returns how many blocks of the prompt a sample stands for, as if all were tracked.
func (a *Event) chosenOf(block int) float64 {
	if i := block - a.firstBlock(); a.sampled > maxSamples && i >= headSamples && i < a.sampled-tailSamples {
		return float64(a.step) / share(a.rate)
	}
	return 1
}

// blocks returns how many leading blocks of a prompt were known or found. If that lies between two samples it is an
// estimate whose errors cancel out over many prompts: each known sample behind what was found stands for the blocks that are
// not tracked. What a prompt has no room for is carried to the next.
func (a *Account) blocks(k *known, found int) int {
	if found >= k.atMost || k.atLeast == k.atMost {
		return max(found, k.atLeast)
	}
	estimate := a.carry
	behind := false
	for _, w := range k.weights {
		if w.block >= found {
			estimate += w.weight
			behind = true
		}
	}
	if !behind {
		return found
	}
	blocks := min(max(found+int(estimate+.5), k.atLeast), k.atMost)
	a.carry = estimate - float64(blocks-found)
	return blocks
}
