package tokens

import (
	"fmt"
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
}

type modelRequest struct {
	key          requestKey
	began, asked int64
	taught       bool
	taughtAt     int64 // when the last ask was that was read
	known        int
	last         last
	closed       int64 // 0 while it is open
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
	request int
	at      int64
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
		m.requests[n].closed = now
		m.count(m.requests[n])
		n = -1
	}
	if n < 0 {
		n = len(m.requests)
		m.requests = append(m.requests, &modelRequest{key: key, began: now})
	}
	r := m.requests[n]
	r.asked = now
	place := r.last.place
	r.last = l
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
	b.asked = append(b.asked, modelEvent{n, now})
	switch {
	case answered && whole:
		b.whole = append(b.whole, now)
	case answered || gone || len(b.whole) == 0 && len(b.missed) == 0: // without an answer its engine computes what is not in the pool
		b.missed = append(b.missed, modelEvent{n, now})
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
		since := max(whole, lastTime(m.emptied), lastTime(b.removed))
		var firstMiss *modelRequest // since it was whole, or was removed
		for _, e := range b.missed {
			if e.at > since && firstMiss == nil {
				firstMiss = m.requests[e.request]
			}
		}
		if firstMiss == nil || firstMiss == r { // nobody before this request
			if whole == 0 {
				continue
			}
			return Evicted
		}
		switch {
		case now < firstMiss.taughtAt+int64(askGap+defaultFirstLook):
			return Saving
		case !m.pool.Stores:
			return Evicted
		case lastTime(b.stored) > whole && lastTime(b.stored) > 0:
			return Partial
		}
		return Unsaved
	}
	return NumPlaces
}

func (m *model) closeDue(now int64) {
	for _, r := range m.requests {
		if r.closed == 0 && now-r.asked >= int64(askGap) {
			r.closed = now
			m.count(r)
		}
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
	if l.place == NumPlaces {
		m.counts[Evicted] += s.lost
	} else {
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
		a := newAccount(pool, 4<<20, 1, func(int) bool { return true })
		rec := NewAccounts(Config{Now: func() int64 { return 1 }}).NewRecorder()
		stored := map[uint64]bool{} // what the store has
		now := int64(0)
		chain := func(n int) []uint64 { // prompts are paths of a small tree
			ids := []uint64{uint64(1 + rng.IntN(2))}
			for len(ids) < n {
				ids = append(ids, ids[len(ids)-1]*3+uint64(rng.IntN(2)))
			}
			return ids
		}
		for step := range 400 {
			now += []int64{1e6, int64(time.Second), int64(6100 * time.Millisecond), int64(15 * time.Second), int64(time.Minute)}[rng.IntN(5)]
			ids := chain(1 + rng.IntN(8))
			switch op := rng.IntN(20); {
			case op == 0:
				clear(stored)
				m.closeDue(now)
				m.emptied = append(m.emptied, now)
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
					for found < len(ids) && stored[ids[found]] {
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
					rec.Record(r, now)
					now += int64(rng.IntN(3)) * int64(4100*time.Millisecond)
					if rng.IntN(3) == 0 { // it is computed and saved
						for _, id := range ids {
							stored[id] = true
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
			a.mu.Lock()
			fmtWhere := fmt.Sprintf("seed %d, step %d", seed, step)
			require.Equal(t, m.counts, a.counts, fmtWhere)
			a.mu.Unlock()
		}
	}
}
