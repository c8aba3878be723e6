package tokens

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// model is the slow oracle of an account over one full-attention group: it keeps everything that happened to a block, and
// applies the definitions word by word.
type model struct {
	pool     Pool
	requests []*modelRequest
	blocks   map[uint64]*modelBlock
	emptied  []int64
	counts   Counts
	unknown  int64 // lost tokens whose place is guessed, as no look tells it

	// Over a store that is looked at: what a look asks for, and how long the account says that the pool remembers.
	look      func(ids []uint64) Place
	remembers func() int64
}

type modelRequest struct {
	key          requestKey
	began, asked int64
	taught       bool
	taughtAt     int64 // when the last ask was that was read
	known        int
	last         last
	closed       int64 // 0 while it is open

	sample []uint64 // of the blocks that it lacked
	due    int64    // of its look, 0 if none is due
	again  bool
	told   Place // by its looks: Saving until they are over, NumPlaces if nothing is told
}

// modelBlock is everything that happened to a block.
type modelBlock struct {
	asked   []modelEvent
	missed  []modelEvent
	whole   []int64
	stored  []int64 // one by one, whole or not
	removed []int64
}

type modelEvent struct {
	request  int
	at       int64
	answered bool
}

func (m *model) block(id uint64) *modelBlock {
	if m.blocks[id] == nil {
		m.blocks[id] = &modelBlock{}
	}
	return m.blocks[id]
}

// latest returns the latest time of events of other requests that began before request n, 0 for none.
func latest(events []modelEvent, n int) (at int64) {
	for _, e := range events {
		if e.request < n {
			at = max(at, e.at)
		}
	}
	return at
}

func lastTime(times []int64) int64 {
	if len(times) == 0 {
		return 0
	}
	return times[len(times)-1]
}

// ask is one ask of a prompt whose blocks have these ids, of which found leading ones are in the pool.
func (m *model) ask(now int64, asker string, p Prompt, ids []uint64, answered, read bool, found int, hit int64) {
	m.closeDue(now)
	b := p.bounds(&m.pool)
	numBlocks := int(b.blocks / m.pool.HashBlock)
	first := int(p.Start / m.pool.HashBlock)
	l := last{prompt: p, answered: answered, hit: hit, found: found, place: NumPlaces}
	if p.NumHashes == 0 {
		m.count(&modelRequest{last: l})
		return
	}
	key := requestKey{asker, p.NumTokens, ids[len(ids)-1]}
	n := -1
	for i, r := range m.requests {
		if r.key == key && r.closed == 0 {
			n = i
		}
	}
	if n >= 0 && now-m.requests[n].began >= int64(maxOpen) {
		m.close(m.requests[n], now)
		n = -1
	}
	if n < 0 {
		n = len(m.requests)
		m.requests = append(m.requests, &modelRequest{key: key, began: now, told: NumPlaces})
	}
	r := m.requests[n]
	r.asked = now
	place := r.last.place
	r.last, r.sample = l, nil
	if answered && found < numBlocks {
		r.sample = []uint64{ids[found], ids[numBlocks-1]}
	}
	if read {
		r.taughtAt = now
		if !r.taught {
			r.taught = true
			for i := first; i < numBlocks; i++ {
				if len(m.block(ids[i]).asked) > 0 {
					r.known = i + 1
				}
			}
		}
		place = m.place(n, r, ids, found, now)
		for i := first; i < numBlocks; i++ {
			m.happen(m.block(ids[i]), n, now, answered, i < found)
		}
	}
	r.last.place = place
}

func (m *model) happen(b *modelBlock, n int, now int64, answered, whole bool) {
	lastAsked := int64(0)
	if len(b.asked) > 0 {
		lastAsked = b.asked[len(b.asked)-1].at
	}
	last := max(lastTime(b.whole), lastAsked)
	gone := last > 0 && (lastTime(m.emptied) > last || lastTime(b.removed) > last)
	b.asked = append(b.asked, modelEvent{n, now, answered})
	switch {
	case answered && whole:
		b.whole = append(b.whole, now)
	case answered || gone || len(b.whole) == 0 && len(b.missed) == 0: // without an answer its engine computes what is not in the pool
		b.missed = append(b.missed, modelEvent{n, now, answered})
	}
}

// misses returns the first request that missed a block since a time, and the last one that had an answer, negative if there is none.
func (b *modelBlock) misses(since int64) (first, last int) {
	first, last = -1, -1
	for _, e := range b.missed {
		if e.at > since && first < 0 {
			first = e.request
		}
		if e.at > since && e.answered {
			last = e.request
		}
	}
	return first, last
}

// runLooks looks for what requests lacked that were closed long enough ago. What the first or the last request that missed a block says
// counts for it.
func (m *model) runLooks(now int64) {
	if m.look == nil {
		return
	}
	for n, r := range m.requests {
		if r.due == 0 || r.due > now {
			continue
		}
		r.due = 0
		place, remembers := m.look(r.sample), m.remembers()
		switch {
		case place == Unsaved && !r.again && remembers != 0 && remembers < now-r.asked:
			r.told = NumPlaces
			continue
		case place == Unsaved && !r.again:
			second := int64(defaultSecondLook)
			if remembers != 0 && remembers < second {
				second = remembers / 4 * 3
			}
			r.due, r.again = now+second, true
			continue
		}
		r.told = place
		if place != Evicted {
			continue
		}
		for _, b := range m.blocks {
			if first, last := b.misses(m.missedSince(b)); first == n || last == n {
				b.whole = append(b.whole, now)
			}
		}
	}
}

// missedSince returns since when misses of a block count.
func (m *model) missedSince(b *modelBlock) int64 {
	return max(lastTime(b.whole), lastTime(m.emptied), lastTime(b.removed))
}

// empty empties the store. Looks for what was in it say nothing.
func (m *model) empty(now int64) {
	m.closeDue(now)
	m.emptied = append(m.emptied, now)
	for _, r := range m.requests {
		if r.due != 0 {
			r.due, r.told = 0, NumPlaces
		}
	}
}

// place returns the place of the block that ends the hit, before the ask itself happens.
func (m *model) place(n int, r *modelRequest, ids []uint64, found int, now int64) Place {
	for i := found; i < r.known; i++ {
		b := m.block(ids[i])
		if latest(b.asked, n) == 0 {
			continue // nothing is remembered of it
		}
		whole := lastTime(b.whole)
		if last := max(whole, latest(b.asked, n)); lastTime(m.emptied) > last || lastTime(b.removed) > last {
			return Emptied
		}
		first, _ := b.misses(m.missedSince(b))   // since it was whole, or was removed
		if first < 0 || m.requests[first] == r { // nobody before this request
			if whole == 0 {
				continue
			}
			return Evicted
		}
		closed := m.requests[first].taughtAt + int64(askGap)
		switch {
		case now < closed+int64(defaultFirstLook):
			return Saving
		case !m.pool.Stores && m.look == nil:
			return Evicted
		case m.look != nil:
			told := m.requests[first].told
			if told == Unsaved && now < closed+int64(defaultFirstLook+defaultSecondLook) {
				return Saving
			}
			if told == NumPlaces {
				return guessed
			}
			return told
		case lastTime(b.stored) > whole && lastTime(b.stored) > 0:
			return Partial
		}
		return Unsaved
	}
	return NumPlaces
}

// guessed is the place of a block of which looks say nothing.
const guessed = NumPlaces + 1

func (m *model) closeDue(now int64) {
	for _, r := range m.requests {
		if r.closed == 0 && now-r.asked >= int64(askGap) {
			m.close(r, now)
		}
	}
}

func (m *model) close(r *modelRequest, now int64) {
	r.closed = now
	m.count(r)
	if m.look != nil && r.sample != nil && r.asked > lastTime(m.emptied) {
		r.due, r.told = now+int64(defaultFirstLook), Saving
	}
}

func (m *model) count(r *modelRequest) {
	l := &r.last
	b := l.prompt.bounds(&m.pool)
	s := splitUnanswered(b)
	if l.answered {
		blocks := min(max(r.known, l.found), int(b.blocks/m.pool.HashBlock))
		s = splitAnswered(b, l.hit, int64(blocks)*m.pool.HashBlock, m.pool.Reachable(l.prompt, blocks))
	}
	m.counts[Engine] += s.engine
	m.counts[InPool] += s.pool
	m.counts[Rules] += s.rules
	m.counts[New] += s.new
	m.counts[NoAnswer] += s.noAnswer
	switch {
	case l.place == guessed || l.place == NumPlaces && m.look != nil:
		m.unknown += s.lost
	case l.place == NumPlaces:
		m.counts[Evicted] += s.lost
	default:
		m.counts[l.place] += s.lost
	}
}

// TestAgainstTheModel compares an account with the model after each of many random events.
func TestAgainstTheModel(t *testing.T) {
	const block, scheduler = 4, 8
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		pool := Pool{HashBlock: block, SchedulerBlock: scheduler, Stores: seed%2 == 0, FullRanks: 1 << (seed % 3) * 3 >> 1, Ranks: []uint64{1 << (seed % 3) * 3 >> 1},
			Keys: func(int64) int64 { return 0 }, Reachable: func(p Prompt, blocks int) int64 {
				n := min(p.NumTokens-1, int64(blocks)*block)
				return max(0, n-n%scheduler)
			}}
		m := &model{pool: pool, blocks: map[uint64]*modelBlock{}}
		stored, store := map[uint64]int{}, newPretendStore() // what the store has, and on how many ranks
		if seed%4 == 1 {
			store.ranks = stored
			pool.NumRanks, pool.Look = []int{2}, store.look
			m.look = func(ids []uint64) Place { return placeOfSample(stored, ids) }
		}
		a := newAccount(pool, 4<<20, 1, func(int) bool { return true })
		m.remembers = a.recall.remembers
		rec := NewAccounts(Config{Now: func() int64 { return 1 }}).NewRecorder()
		now := int64(0)
		chain := func(n int) []uint64 { // prompts are paths of a small tree
			ids := []uint64{uint64(1 + rng.IntN(2))}
			for len(ids) < n {
				ids = append(ids, ids[len(ids)-1]*3+uint64(rng.IntN(2)))
			}
			return ids
		}
		for step := range 400 {
			now += []int64{1e6, int64(time.Second), int64(6100 * time.Millisecond), int64(15 * time.Second), int64(time.Minute)}[rng.IntN(5)] + 1000 + rng.Int64N(1000)
			ids := chain(1 + rng.IntN(8))
			switch op := rng.IntN(20); {
			case op == 0:
				clear(stored)
				m.empty(now)
				rec.Record(a.NewEmptied(true), now)
				rec.accounts.Flush()
			case op == 1:
				id := ids[len(ids)-1]
				delete(stored, id)
				m.closeDue(now)
				m.block(id).removed = append(m.block(id).removed, now)
				r := a.NewChange(0, 1, true)
				r.AddHashes(hashesOf([]uint64{id}), 32)
				rec.Record(r, now)
			case op < 4: // the store evicts silently
				delete(stored, ids[rng.IntN(len(ids))])
			default:
				start := min(rng.IntN(3), len(ids)/2) * 2
				p := Prompt{NumTokens: int64(len(ids)*block + rng.IntN(3)*rng.IntN(block)), Start: int64(start * block), NumHashes: len(ids) - start}
				asker := string(rune('a' + rng.IntN(2)))
				for range 1 + rng.IntN(3) {
					found := start
					for found < len(ids) && stored[ids[found]] == 2 {
						found++
					}
					answered, read := rng.IntN(10) > 0, rng.IntN(10) > 0
					if !read {
						answered = false
					}
					hit := pool.Reachable(p, found)
					m.ask(now, asker, p, ids, answered, read, found, hit)
					r := a.NewAsk(asker, p)
					r.AddHashes(hashesOf(ids[start:]), 32)
					r.Answered, r.Hit, r.Found, r.Whole = answered, hit, found, found
					r.Refused = !read
					if end := int(p.bounds(&pool).blocks / block); m.look != nil && found < end {
						r.Missing = store.missing([]uint64{ids[found], ids[end-1]})
					}
					rec.Record(r, now)
					now += int64(rng.IntN(3)) * int64(4100*time.Millisecond)
					if rng.IntN(3) == 0 { // it is computed and saved
						ranks := 2
						if m.look != nil && rng.IntN(4) == 0 {
							ranks = 1 // the puts of the other fail
						}
						for _, id := range ids {
							stored[id] = max(stored[id], ranks)
						}
						if pool.Stores {
							m.closeDue(now)
							for _, id := range ids {
								if b := m.block(id); len(b.asked) > 0 {
									b.whole = append(b.whole, now)
								}
							}
							for place := range 3 {
								if pool.FullRanks>>place&1 == 1 {
									r := a.NewChange(place, len(ids), false)
									r.AddHashes(hashesOf(ids), 32)
									rec.Record(r, now)
								}
							}
						}
					}
				}
			}
			rec.accounts.Flush()
			m.closeDue(now)
			a.tick(now)
			m.runLooks(now)
			a.look(t.Context(), func() int64 { return now })
			unknown := m.unknown
			for p, n := range a.counts {
				if Place(p) == Evicted || Place(p) == Saving || Place(p) == Partial || Place(p) == Unsaved {
					require.GreaterOrEqual(t, n, m.counts[p], "seed %d, step %d, %v, %v", seed, step, m.counts, a.counts)
					unknown -= n - m.counts[p]
				} else {
					require.Equal(t, m.counts[p], n, "seed %d, step %d, %v, %v", seed, step, m.counts, a.counts)
				}
			}
			require.Zero(t, unknown, "seed %d, step %d, %v, %v", seed, step, m.counts, a.counts)
		}
	}
}

// placeOfSample returns the place that blocks of one group of two ranks say.
func placeOfSample(ranks map[uint64]int, ids []uint64) Place {
	place := Evicted
	for _, id := range ids {
		switch ranks[id] {
		case 1:
			return Partial
		case 0:
			place = Unsaved
		}
	}
	return place
}
