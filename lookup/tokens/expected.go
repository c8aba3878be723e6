package tokens

import (
	"sort"
	"time"
)

// maxTrusted is how long what was found is expected to stay in a pool of which nobody knows how long it remembers.
const maxTrusted = 10 * time.Minute

// Expected returns how many blocks from the start of an ask its pool is likely to have: those that were asked for before, as far as
// they were found, or are being saved, less than half of what the pool remembers ago. It returns 0 if there are none, and while
// somebody else uses the account: it waits for nobody. The ask has all of its hashes. A nil ask has no such blocks.
func (a *Event) Expected(now int64) int {
	if a == nil || a.Refused || !a.account.mu.TryLock() {
		return 0
	}
	defer a.account.mu.Unlock()
	return a.account.expected(a, now)
}

func (a *Account) expected(r *Event, now int64) int {
	var tracked [maxSamples]sample
	n := 0
	for _, s := range r.samples {
		if n < len(tracked) && a.table.tracks(s.fingerprint) {
			tracked[n] = s
			n++
		}
	}
	if n == 0 {
		return 0
	}
	remembers := a.recall.remembers()
	if remembers == 0 {
		remembers = min(now-max(a.began, a.table.forgotten), int64(2*maxTrusted))
	}
	likely := sort.Search(n, func(i int) bool { // a pool that has a block has those before it, mostly
		e := a.table.get(tracked[i].fingerprint)
		return e == nil || !a.isLikely(e, now, remembers/2)
	})
	if likely == 0 {
		return 0
	}
	return tracked[likely-1].block + 1 - r.firstBlock()
}

// isLikely reports whether a block is likely to be in the pool: it was seen there less than trusted ago.
func (a *Account) isLikely(e *entry, now, trusted int64) bool {
	a.looks.apply(e)
	seen := e.whole
	if e.missedBy != 0 {
		if now < e.asked+int64(askGap) {
			return false // who asks again and again has not computed it
		}
		if now >= e.missedUntil+int64(askGap+a.pool.FirstLook) && a.looks.outcomes[e.missedBy].place != Saving {
			return false // its engine has not saved it
		}
		seen = e.missedUntil
	}
	return seen != 0 && !a.isEmptied(e) && now-seen < trusted
}
