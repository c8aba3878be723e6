package tokens

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/hitline/hitline/coordinator"
)

// Missing are some blocks that a lookup has not found: the group of each, and the hash that keys it there.
type Missing struct {
	Groups []int
	Hashes coordinator.Hashes
}

const (
	// defaultFirstLook is how long after a request was closed its engine may take to save what it has computed, and defaultSecondLook
	// how much longer if nothing was saved by then.
	defaultFirstLook  = 30 * time.Second
	defaultSecondLook = 5 * time.Minute
	// lookRate is how many keys a second a store is asked for by looks.
	lookRate = 64
	// maxLooks is how many looks of a pool wait at a time, and maxOutcomes of how many the outcome is known.
	maxLooks     = 1 << 12
	lookBytes    = 512
	maxOutcomes  = 1 << 14
	outcomeBytes = 64
	// lookEvery is how often looks are made. After so many times each the size of a pool is asked for.
	lookEvery = time.Second
	sizeEvery = 10
)

// look is a question whether the engine of a request has saved what the request lacked.
type look struct {
	request uint32
	missing Missing
	keys    int
	asked   int64 // when the request last asked
	due     int64
	again   bool // a look before has found nothing
}

// looks are those of one pool. The store is asked for so few keys that it does not matter to lookups: requests are drawn at random.
// It belongs to its account.
type looks struct {
	keysOf   func(m *Missing) int
	second   time.Duration
	reserved reservation // for waiting looks
	waiting  [2][]*look  // for the first and for the second time, in the order in which they are due
	asking   int         // looks that are being made

	drawn, asked budget // keys that requests may still be drawn for, and that the store may still be asked for

	// outcomes are those of requests: Saving for one whose look is not over, Evicted for one whose engine has saved, Partial and Unsaved.
	outcomes      map[uint32]outcome
	order         []uint32 // of outcomes, the oldest first
	outcomeMemory reservation
	shares        shares // of outcomes, of late
	carry         [NumPlaces]float64
	// nothingAt is when a look last found nothing and was to be made again, 0 if none did.
	nothingAt int64

	keys, dropped int64
}

type outcome struct {
	place Place
	at    int64
}

// budget is a number of keys that grows by lookRate a second, up to a bound.
type budget struct {
	left, most float64
	at         int64
}

func (b *budget) grow(now int64) {
	b.left = min(b.most, b.left+lookRate*time.Duration(now-b.at).Seconds())
	b.at = now
}

func newLooks(pool *Pool, now int64, reserve func(bytes int) bool) looks {
	return looks{
		keysOf: func(m *Missing) (keys int) {
			for _, g := range m.Groups {
				keys += pool.NumRanks[g]
			}
			return keys
		},
		second:   pool.SecondLook,
		reserved: reservation{reserve: reserve, each: lookBytes, max: maxLooks},
		drawn:    budget{10 * lookRate, 10 * lookRate, now}, asked: budget{lookRate, lookRate, now},
		outcomes: map[uint32]outcome{}, outcomeMemory: reservation{reserve: reserve, each: outcomeBytes, max: maxOutcomes},
	}
}

func (l *looks) bytes() int { return l.reserved.bytes() + l.outcomeMemory.bytes() }

// numWaiting returns how many looks are not over.
func (l *looks) numWaiting() int { return len(l.waiting[0]) + len(l.waiting[1]) + l.asking }

// draw draws a request that was closed now, or not, so that the store can be asked for all that were drawn, twice if need be.
func (l *looks) draw(req *request, now int64, first time.Duration) {
	missing := req.last.missing
	if len(missing.Groups) == 0 {
		return
	}
	l.drawn.grow(now)
	if likely := 2 * l.drawn.left / l.drawn.most; likely < 1 && rand.Float64() >= likely { //nolint:gosec // no secret
		return
	}
	if !l.reserved.reserveFor(l.numWaiting()+1) || !l.expect(req.number) {
		l.dropped++
		return
	}
	keys := l.keysOf(&missing)
	l.drawn.left -= 2 * float64(keys)
	l.waiting[0] = append(l.waiting[0], &look{request: req.number, missing: missing, keys: keys, asked: req.asked, due: now + int64(first)})
}

// expect begins to remember the outcome of a request. It returns false if there is no memory.
func (l *looks) expect(request uint32) bool {
	for !l.outcomeMemory.reserveFor(len(l.order) + 1) {
		if len(l.order) == 0 {
			return false
		}
		delete(l.outcomes, l.order[0])
		l.order = l.order[1:]
	}
	l.outcomes[request] = outcome{place: Saving}
	l.order = append(l.order, request)
	return true
}

// take returns the looks that are due, for at most as many keys as the store may be asked for now.
func (l *looks) take(now int64) (batch []*look) {
	l.asked.grow(now)
	for i := range l.waiting {
		for len(l.waiting[i]) > 0 {
			next := l.waiting[i][0]
			fits := float64(next.keys) <= l.asked.left || l.asked.left == l.asked.most // one of very many keys is made alone
			if next.due > now || !fits || len(batch) > 0 && batch[0].missing.Hashes.HashLen() != next.missing.Hashes.HashLen() {
				break
			}
			l.asked.left -= float64(next.keys)
			l.waiting[i][0] = nil
			l.waiting[i] = l.waiting[i][1:]
			batch = append(batch, next)
		}
	}
	l.asking = len(batch)
	return batch
}

// drop forgets looks without an outcome.
func (l *looks) drop(batch []*look) {
	for _, k := range batch {
		delete(l.outcomes, k.request)
	}
}

// clear forgets all looks that wait: the store was emptied.
func (l *looks) clear() {
	for i := range l.waiting {
		l.drop(l.waiting[i])
		l.waiting[i] = nil
	}
}

// finish sets the outcome of a look that has found its blocks on some ranks. remembers is how long the pool remembers, 0 if that is
// not known: what it has evicted since the request, nobody can see. Then the second look comes sooner.
func (l *looks) finish(k *look, ranks []int, numRanks []int, now, remembers int64) {
	if _, ok := l.outcomes[k.request]; !ok {
		return
	}
	place, age := placeOfLook(k.missing.Groups, ranks, numRanks), now-k.asked
	switch {
	case place == Unsaved && !k.again && remembers != 0 && remembers < age,
		place == Partial && remembers != 0 && remembers/4 < age && !isEven(k.missing.Groups, ranks, numRanks):
		delete(l.outcomes, k.request)
		return
	case place == Unsaved && !k.again:
		second := int64(l.second)
		if remembers != 0 && remembers < second {
			second = remembers / 4 * 3
		}
		k.again, k.due = true, now+second
		l.nothingAt = now
		l.waiting[1] = append(l.waiting[1], k)
		return
	case !k.again:
		l.drawn.left += float64(k.keys) // of the second look
	}
	l.outcomes[k.request] = outcome{place, now}
	l.shares.note(place, 1, now)
}

// placeOfLook returns what a look says that has found each block on some of the ranks of its group: Evicted if all blocks were saved,
// Unsaved if no group was, else Partial. A group was saved if all of its blocks were.
func placeOfLook(groups, ranks, numRanks []int) Place {
	isAbsent := map[int]bool{}
	for i, g := range groups {
		if 0 < ranks[i] && ranks[i] < numRanks[g] {
			return Partial
		}
		isAbsent[g] = isAbsent[g] || ranks[i] == 0
	}
	saved, absent := 0, 0
	for _, is := range isAbsent {
		if is {
			absent++
		} else {
			saved++
		}
	}
	switch {
	case absent == 0:
		return Evicted
	case saved == 0:
		return Unsaved
	}
	return Partial
}

// isEven reports whether what is not on all ranks of its group is several blocks on as many ranks each, as if some ranks saved nothing. A
// store that evicts keys leaves blocks on different numbers of ranks.
func isEven(groups, ranks, numRanks []int) bool {
	blocks, on := map[int]int{}, map[int]int{}
	for i, g := range groups {
		if blocks[g] > 0 && ranks[i] != on[g] {
			return false
		}
		blocks[g], on[g] = blocks[g]+1, ranks[i]
	}
	for g, n := range blocks {
		if n == 1 && 0 < on[g] && on[g] < numRanks[g] {
			return false
		}
	}
	return true
}

// apply makes a block whole that a look has seen whole since it was last missed.
func (l *looks) apply(e *entry) {
	for _, n := range [...]uint32{e.missedBy, e.lastMissedBy} {
		if o := l.outcomes[n]; n != 0 && o.place == Evicted {
			e.whole, e.flags = max(e.whole, o.at), e.flags&^emptiedFlag
			e.missedBy, e.lastMissedBy = 0, 0
			return
		}
	}
}

// placeOf returns the place of a block that was missed for so long that it should have been saved, and was not seen whole since.
// isEarly is set while it may still be saved late.
func (l *looks) placeOf(e *entry, now int64, isEarly bool) Place {
	o, ok := l.outcomes[e.missedBy]
	if !ok {
		o.place = l.guess(now)
	}
	if o.place == Unsaved && isEarly {
		return Saving
	}
	return o.place
}

// guess returns the outcome of a look that was not made: it has the shares of those that were. What rounding leaves is carried.
// While no look has an outcome, one that has found nothing, and is to be made again, tells most.
func (l *looks) guess(now int64) Place {
	recent := l.shares.recent(now)
	total := recent.Total()
	switch {
	case total == 0 && l.nothingAt != 0 && now-l.nothingAt < int64(sharesMinutes*time.Minute):
		return Unsaved
	case total == 0:
		return Evicted
	}
	best := Evicted
	for _, p := range [...]Place{Evicted, Partial, Unsaved} {
		if l.carry[p] += float64(recent[p]) / float64(total); l.carry[p] > l.carry[best] {
			best = p
		}
	}
	l.carry[best]--
	return best
}

// look makes the looks of a pool that are due.
func (a *Account) look(ctx context.Context, now func() int64) {
	a.mu.Lock()
	batch := a.looks.take(a.advance(now()))
	emptied := max(a.emptied, a.suspect)
	a.mu.Unlock()
	if len(batch) == 0 {
		return
	}
	all := Missing{}
	var blob []byte
	for _, k := range batch {
		all.Groups = append(all.Groups, k.missing.Groups...)
		blob = append(blob, k.missing.Hashes.Bytes()...)
	}
	all.Hashes = coordinator.NewHashes(blob, batch[0].missing.Hashes.HashLen())
	ranks, err := a.pool.Look(ctx, &all)

	a.mu.Lock()
	defer a.mu.Unlock()
	l, at := &a.looks, a.advance(now())
	l.asking = 0
	switch {
	case err != nil:
		l.dropped += int64(len(batch))
		fallthrough
	case emptied != max(a.emptied, a.suspect):
		l.drop(batch)
		return
	}
	l.keys += int64(l.keysOf(&all))
	for _, k := range batch {
		n := len(k.missing.Groups)
		l.finish(k, ranks[:n], a.pool.NumRanks, at, a.recall.remembers())
		ranks = ranks[n:]
	}
}

// updateSize asks for the size of the pool. If that fails it stays as it was.
func (a *Account) updateSize(ctx context.Context) {
	size, err := a.pool.Size(ctx)
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		a.looks.dropped++
		return
	}
	a.size = size
}

// RunLooks looks at the stores of all pools, and how large they are, one after the other, until ctx ends.
func (s *Accounts) RunLooks(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		s.mu.Lock()
		all := make([]*Account, 0, len(s.accounts))
		for a := range s.accounts {
			all = append(all, a)
		}
		s.mu.Unlock()
		for _, a := range all {
			if a.pool.Look != nil && ctx.Err() == nil {
				a.look(ctx, s.cfg.Now)
			}
			if a.pool.Size != nil && n%sizeEvery == 0 && ctx.Err() == nil {
				a.updateSize(ctx)
			}
		}
	}
}
