package tokens

// recency sums up the weights of the blocks in a table's log, so that how many blocks were asked for since one is told in a few
// steps: a Fenwick tree over runs of positions.
type recency struct {
	runs []int32 // the tree
	all  int32
}

// runLog is the binary logarithm of the positions of a run.
const runLog = 3

func (r *recency) reset(positions int) {
	r.runs, r.all = make([]int32, positions>>runLog+1), 0
}

// add adds a weight at a position.
func (r *recency) add(position int, weight int32) {
	r.all += weight
	for i := position>>runLog + 1; i < len(r.runs); i += i & -i {
		r.runs[i] += weight
	}
}

// before returns the weights of all runs before that of a position.
func (r *recency) before(position int) (sum int32) {
	for i := position >> runLog; i > 0; i -= i & -i {
		sum += r.runs[i]
	}
	return sum
}

// distance returns how many tracked blocks were asked for since an entry was: an LRU pool with room for more would still
// hold it.
func (t *table) distance(e *entry) int64 {
	mask := len(t.log) - 1
	at, begin := int(e.at)&mask, int(t.begin)&mask
	older := t.recency.upTo(t, at) - t.recency.upTo(t, begin)
	if at < begin { // the ring has begun anew between them
		older += t.recency.all
	}
	return int64(t.recency.all - older - int32(e.weight))
}

// upTo returns the weights of the positions before one.
func (r *recency) upTo(t *table, position int) int32 {
	sum := r.before(position)
	for _, i := range t.log[position&^(1<<runLog-1) : position] {
		if i != 0 {
			sum += int32(t.entries[i].weight)
		}
	}
	return sum
}
