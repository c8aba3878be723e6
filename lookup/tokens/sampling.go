package tokens

import "time"

// What a table may track, if not all fits: so large a share that it reaches back reachFactor times as long as the pool
// remembers, at most maxReach.
const (
	reachFactor  = 4
	maxReach     = 48 * time.Hour
	minThreshold = 1 << 52 // a share of 1/4096
	wideShare    = 1 << 59
)

// adapt lowers the share of blocks that are tracked if the table is full and does not reach back far enough, and raises it
// if it reaches back more than twice as far, or is half empty. remembers is how long the pool remembers, 0 if that is not known.
func (t *table) adapt(now, remembers int64) {
	oldest := t.oldest()
	if oldest == nil {
		return
	}
	reach, wanted := now-oldest.asked, int64(maxReach)
	if remembers > 0 && t.threshold <= wideShare {
		wanted = min(wanted, reachFactor*remembers)
	}
	switch n := t.count(); {
	case t.isFull && reach < wanted && t.threshold > minThreshold:
		t.lower(t.threshold / 5 * 4)
	case (n < t.limit/2 || reach > 2*wanted) && t.threshold < ^uint64(0):
		t.raise(t.threshold/4*5, now)
	}
	t.isFull = false
}

// lower removes the blocks that are not tracked any more.
func (t *table) lower(threshold uint64) {
	t.threshold, t.judged = threshold, min(t.judged, threshold)
	for i := 1; i < len(t.entries); i++ {
		if e := &t.entries[i]; e.asked != 0 && !t.tracks(e.fingerprint) {
			t.remove(e)
		}
	}
}

// raise tracks more blocks. They are judged once the table has tracked them for as long as it reaches back: until then
// a block without an entry may have been asked for before.
func (t *table) raise(threshold uint64, now int64) {
	if t.judged < t.threshold {
		return // one step at a time
	}
	if threshold < t.threshold {
		threshold = ^uint64(0)
	}
	t.threshold, t.raised = threshold, now
}

// updateJudged judges the blocks that raise has added, if the table reaches back no further than to that time.
func (t *table) updateJudged() {
	if t.judged == t.threshold {
		return
	}
	if oldest := t.oldest(); oldest == nil || oldest.asked >= t.raised {
		t.judged = t.threshold
	}
}
