package oracle

// Classes: the names of the reference's exceptions.
const (
	assertionError = "AssertionError"
	indexError     = "IndexError"
	valueError     = "ValueError"
)

// exception is the class of an exception. Functions panic with it where the reference raises.
type exception string

// recoverException recovers from a panic with an exception and sets its class.
func recoverException(class *string) {
	switch r := recover().(type) {
	case nil:
	case exception:
		*class = string(r)
	default:
		panic(r)
	}
}

// finder is one call of find_longest_cache_hit.
type finder struct {
	pool   *Pool
	stored func(group, raw int) bool // nil if everything is stored
	hashes int                       // number of raw hashes of the request
	align  int                       // of hits, in tokens
}

// FindHit returns the hit, which is the number of leading tokens that all groups can serve,
// the mask of each group, and the class of the error. The mask of a dropped group is empty.
// stored reports whether the raw hash of a group is in the pool; nil means that all are.
// maxLength is in tokens and may be any number, also negative.
func (p *Pool) FindHit(stored func(group, raw int) bool, hashes, maxLength int, applyEagle bool) (hit int, masks [][]bool, class string) {
	defer recoverException(&class)
	f := &finder{pool: p, stored: stored, hashes: hashes, align: p.alignment()}
	groups := p.attentionGroups()
	found := make([][]bool, len(groups))
	if len(groups) == 1 {
		a := &groups[0]
		if !p.since("0.27.0") {
			f.align = a.BlockSize
		}
		found[0], hit = f.find(a, maxLength, applyEagle && a.eagle)
	} else {
		hit = f.findCommon(groups, found, maxLength, applyEagle)
	}
	masks = make([][]bool, len(p.Groups))
	for i, a := range groups {
		for _, g := range a.members {
			masks[g] = found[i]
		}
	}
	return hit, masks, ""
}

// findCommon runs the finders of all groups, each bounded by the hit so far, until the hit does
// not change. It sets found.
func (f *finder) findCommon(groups []attentionGroup, found [][]bool, maxLength int, applyEagle bool) int {
	hit := maxLength
	hits := make([]int, len(groups))
	done, checked := make([]bool, len(groups)), make([]bool, len(groups))
	for {
		cur := hit
		for i := range groups {
			a := &groups[i]
			if a.full() && done[i] {
				cur = f.again(a, cur, hits[i])
				continue
			}
			drop := applyEagle && a.eagle && !checked[i]
			bound := cur
			if drop {
				bound = f.eagleBound(a, cur, maxLength)
			}
			found[i], hits[i] = f.find(a, bound, drop)
			done[i] = true
			if drop {
				checked[i] = true
			} else if hits[i] < cur {
				clear(checked)
			}
			cur = hits[i]
		}
		if cur >= hit {
			break
		}
		hit = cur
		if len(groups) == 2 && groups[0].full() {
			break
		}
	}
	f.cutFull(groups, found, hit)
	return hit
}

// again returns the common hit after a full group that was already searched. own is the hit
// of that search.
func (f *finder) again(a *attentionGroup, cur, own int) int {
	if f.pool.since("0.26.0") {
		return min(cur, own)
	}
	return floorDiv(cur, a.BlockSize) * a.BlockSize
}

// eagleBound returns how many tokens an eagle group may use if the common hit is cur: some
// more, because it drops its last block.
func (f *finder) eagleBound(a *attentionGroup, cur, maxLength int) int {
	p := f.pool
	margin, limit := a.BlockSize, maxLength
	switch {
	case a.Kind == "mamba" && p.since("0.27.0"):
		return cur
	case a.full() && p.fineGrained() && a.BlockSize > p.HashBlockSize:
		margin = p.HashBlockSize
	}
	if p.since("0.32.0") {
		limit = f.hashes * p.HashBlockSize
	}
	return min(cur+margin, limit)
}

// cutFull cuts the masks of full groups to the hit: before 0.29.0 only the first one's.
func (f *finder) cutFull(groups []attentionGroup, found [][]bool, hit int) {
	for i, a := range groups {
		if a.full() && (i == 0 || f.pool.since("0.29.0")) {
			found[i] = found[i][:min(len(found[i]), ceilDiv(hit, a.BlockSize))]
		}
	}
}

// find runs the finder of a group's kind and returns its mask and its hit in tokens.
func (f *finder) find(a *attentionGroup, maxLength int, drop bool) (mask []bool, hit int) {
	switch {
	case a.full():
		return f.findFull(a, maxLength, drop)
	case a.window():
		mask = f.findWindow(a, maxLength, drop)
	case a.Kind == "chunked_local_attention":
		mask = f.findLocal(a, maxLength, drop)
	case a.scratch():
	case f.align < a.BlockSize:
		return f.findState(a, maxLength)
	default:
		mask = f.findMamba(a, maxLength)
	}
	return mask, len(mask) * a.BlockSize
}

// chunks returns the number of chunks of a group that have a hash.
func (f *finder) chunks(a *attentionGroup) int { return f.hashes / f.pool.stride(a.BlockSize) }

// cached reports whether chunk i is stored for every member. It raises IndexError if the
// chunk has no hash.
func (f *finder) cached(a *attentionGroup, i int) bool {
	k := f.pool.stride(a.BlockSize)
	if i >= f.chunks(a) {
		panic(exception(indexError))
	}
	return f.cachedRaw(a, i*k+k-1)
}

// cachedRaw reports whether a raw hash is stored for every member.
func (f *finder) cachedRaw(a *attentionGroup, raw int) bool {
	for _, g := range a.members {
		if f.stored != nil && !f.stored(g, raw) {
			return false
		}
	}
	return true
}

// nullMask returns n false entries, none if n is negative.
func nullMask(n int) []bool { return make([]bool, max(0, n)) }

// findFull counts the leading cached chunks. If hits may end inside a chunk, it adds the raw
// hashes after them. drop gives up the last block.
func (f *finder) findFull(a *attentionGroup, maxLength int, drop bool) (mask []bool, hit int) {
	maxChunks := floorDiv(maxLength, a.BlockSize)
	if maxChunks < 0 {
		panic(exception(valueError))
	}
	n := 0
	for n < maxChunks && n < f.chunks(a) && f.cached(a, n) {
		n++
	}
	hit = n * a.BlockSize
	if f.align < a.BlockSize {
		k := f.pool.stride(a.BlockSize)
		for raw := min(maxLength/f.align, f.hashes, n*k+k-1) - 1; raw >= n*k; raw-- {
			if f.cachedRaw(a, raw) {
				hit = (raw + 1) * f.align
				break
			}
		}
	}
	if drop && hit > 0 {
		hit -= min(f.align, a.BlockSize)
	}
	hit = hit / f.align * f.align
	mask = nullMask(ceilDiv(hit, a.BlockSize))
	for i := range mask {
		mask[i] = true
	}
	return mask, hit
}

// trimToAlignment drops entries from the end until the length in tokens is aligned.
func (f *finder) trimToAlignment(a *attentionGroup, mask []bool) []bool {
	for len(mask)*a.BlockSize%f.align != 0 {
		mask = mask[:len(mask)-1]
	}
	return mask
}

// findWindow looks from the right for a run of cached chunks as long as the window.
func (f *finder) findWindow(a *attentionGroup, maxLength int, drop bool) []bool {
	block := a.BlockSize
	if f.align%block != 0 && !f.pool.since("0.30.0") {
		panic(exception(assertionError))
	}
	need := ceilDiv(a.SlidingWindow-1, block)
	if drop {
		need++
	}
	mask := nullMask(floorDiv(maxLength, block))
	run, matched := 0, false
	for i := len(mask) - 1; i >= 0 && !matched; i-- {
		if !f.cached(a, i) {
			run = 0
			continue
		}
		end := (i + 1) * block
		if drop {
			end = i * block
		}
		if run == 0 && end%f.align != 0 && block != f.align {
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
		mask = f.trimToAlignment(a, mask[:run])
	}
	if drop && len(mask) > 0 {
		mask = f.trimToAlignment(a, mask[:len(mask)-1])
	}
	return mask
}

// findLocal counts cached chunks from the start of the current attention chunk.
func (f *finder) findLocal(a *attentionGroup, maxLength int, drop bool) []bool {
	if drop || a.BlockSize != f.align {
		panic(exception(assertionError))
	}
	start := 0
	if maxLength > 0 {
		start = maxLength / a.AttentionChunkSize * a.AttentionChunkSize
	}
	mask := nullMask(start / a.BlockSize)
	for i := len(mask); i < floorDiv(maxLength, a.BlockSize) && f.cached(a, i); i++ {
		mask = append(mask, true)
	}
	return mask
}

// findMamba looks from the right for one aligned cached chunk.
func (f *finder) findMamba(a *attentionGroup, maxLength int) []bool {
	mask := nullMask(floorDiv(maxLength, a.BlockSize))
	for i := len(mask) - 1; i >= 0; i-- {
		if f.cached(a, i) && (i+1)*a.BlockSize%f.align == 0 {
			mask[i] = true
			return mask[:i+1]
		}
	}
	return nil
}

// findState is findMamba if hits may end inside a block. It returns mask and hit.
func (f *finder) findState(a *attentionGroup, maxLength int) (mask []bool, hit int) {
	for raw := min(floorDiv(maxLength, f.align), f.hashes) - 1; raw >= 0; raw-- {
		if f.cachedRaw(a, raw) {
			return append(nullMask(raw/f.pool.stride(a.BlockSize)), true), (raw + 1) * f.align
		}
	}
	return nil, 0
}
