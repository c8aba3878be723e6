package tokens

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
)

// pretendStore is a store of one group on some ranks, which a look asks by the hashes that hashesOf makes.
type pretendStore struct {
	ranks   map[uint64]int // of blocks, by id
	pool    *lru           // if set, it has blocks on one rank
	idOf    map[string]uint64
	numKeys int // that looks have asked for, of one rank
	err     error
	pause   func()
}

func newPretendStore() *pretendStore {
	return &pretendStore{ranks: map[uint64]int{}, idOf: map[string]uint64{}}
}

// missing returns blocks that a look is to ask for.
func (s *pretendStore) missing(ids []uint64) Missing {
	m := Missing{Hashes: coordinator.NewHashes(hashesOf(ids), 32)}
	for i, id := range ids {
		s.idOf[string(m.Hashes.At(i))] = id
		m.Groups = append(m.Groups, 0)
	}
	return m
}

func (s *pretendStore) look(_ context.Context, m *Missing) (ranks []int, err error) {
	if s.pause != nil {
		s.pause()
	}
	s.numKeys += m.Hashes.Len()
	for i := range m.Hashes.Len() {
		ranks = append(ranks, s.ranksOf(s.idOf[string(m.Hashes.At(i))]))
	}
	return ranks, s.err
}

func (s *pretendStore) ranksOf(id uint64) int {
	if s.pool != nil && s.pool.has(id) {
		return 1
	}
	return s.ranks[id]
}

// lookBench is a bench over a store without a sight of what is stored.
func newLookBench(t testing.TB, numRanks int) (*bench, *pretendStore) {
	b, store := newBench(t, false, 1<<20), newPretendStore()
	pool := b.account.pool
	pool.Look, pool.NumRanks = store.look, []int{numRanks}
	b.account = newAccount(pool, 1<<20, b.now, func(int) bool { return true })
	return b, store
}

// askStore asks for a prompt of which the leading blocks are found that are on so many ranks.
func (b *bench) askStore(s *pretendStore, numRanks int, asker string, ids []uint64) {
	found := 0
	for found < len(ids) && s.ranksOf(ids[found]) == numRanks {
		found++
	}
	r := b.account.NewAsk(asker, Prompt{NumTokens: int64(4 * len(ids)), NumHashes: len(ids)})
	r.AddHashes(hashesOf(ids), 32)
	r.Answered, r.Hit, r.Found, r.Whole = true, int64(4*found), found, found
	if found < len(ids) {
		r.Missing = s.missing(slices.Compact([]uint64{ids[found], ids[len(ids)-1]}))
	}
	b.recorder.Record(r, b.now)
	b.recorder.accounts.Flush()
}

// lookFor lets time pass, with looks each second.
func (b *bench) lookFor(d time.Duration) {
	for end := b.now + int64(d); b.now < end; {
		b.now = min(b.now+int64(time.Second), end)
		b.account.tick(b.now)
		b.account.look(b.t.Context(), func() int64 { return b.now })
	}
}

// What a look has seen decides the place of what is missed later.
func TestLook(t *testing.T) {
	ids := chain(10)
	for name, of := range map[string]struct {
		ranks  int           // on which blocks are stored
		after  time.Duration // the first ask
		evict  bool          // before the second
		second time.Duration // when it comes
		err    error
		want   string
	}{
		"saved and evicted":     {ranks: 2, after: 10 * time.Second, evict: true, second: time.Minute, want: "evicted"},
		"saved late":            {ranks: 2, after: time.Minute, evict: true, second: 6 * time.Minute, want: "evicted"},
		"the first look is due": {ranks: 2, after: 10 * time.Second, evict: true, second: 33 * time.Second, want: "saving"},
		"never saved":           {second: 6 * time.Minute, want: "unsaved"},
		"before the second":     {second: 5 * time.Minute, want: "saving"},
		"on one rank":           {ranks: 1, after: 10 * time.Second, second: time.Minute, want: "partial"},
		"a look fails":          {second: 6 * time.Minute, err: errors.New("no store"), want: "evicted"},
	} {
		t.Run(name, func(t *testing.T) {
			b, s := newLookBench(t, 2)
			s.err = of.err
			b.askStore(s, 2, "a", ids)
			b.lookFor(of.after)
			for _, id := range ids {
				s.ranks[id] = of.ranks
			}
			b.lookFor(of.second - of.after - time.Second)
			if of.evict {
				clear(s.ranks)
			}
			b.lookFor(time.Second)
			b.took()
			b.askStore(s, 2, "b", ids)
			b.pass(5 * time.Second)
			assert.Equal(t, map[string]int64{of.want: 40}, b.took())
			if of.err != nil {
				assert.Equal(t, int64(1), b.account.looks.dropped)
			}
		})
	}
}

// A look between which and its request the store was emptied says nothing, nor does one while it is emptied.
func TestLookAtEmptied(t *testing.T) {
	ids := chain(10)
	for name, during := range map[string]bool{"before": false, "during": true} {
		t.Run(name, func(t *testing.T) {
			b, s := newLookBench(t, 1)
			empty := func() {
				b.recorder.Record(b.account.NewEmptied(false), b.now)
				b.recorder.accounts.Flush()
			}
			b.askStore(s, 1, "a", ids)
			if during {
				s.pause = empty
			} else {
				b.lookFor(10 * time.Second)
				empty()
			}
			b.lookFor(10 * time.Minute)
			assert.Empty(t, b.account.looks.outcomes)
		})
	}
}

// What the first request that missed a block has not saved, a later one may have, which was looked at, too.
func TestLookAtALaterRequest(t *testing.T) {
	ids := chain(10)
	b, s := newLookBench(t, 1)
	b.askStore(s, 1, "a", ids)
	b.lookFor(6 * time.Minute)
	b.askStore(s, 1, "b", ids)
	for _, id := range ids {
		s.ranks[id] = 1
	}
	b.lookFor(time.Minute)
	clear(s.ranks)
	b.took()
	b.askStore(s, 1, "c", ids)
	b.pass(5 * time.Second)
	assert.Equal(t, map[string]int64{"evicted": 40}, b.took())
}

// What was not looked at has the shares of what was, and is being saved for as long as it could be saved late.
func TestNotLookedAt(t *testing.T) {
	for after, want := range map[time.Duration]string{time.Minute: "saving", 6 * time.Minute: "unsaved"} {
		b, s := newLookBench(t, 1)
		b.askStore(s, 1, "a", chain(10))
		b.pass(10 * time.Second)
		b.account.looks.clear()
		b.pass(after)
		b.account.looks.shares.note(Unsaved, 1, b.now)
		b.took()
		b.askStore(s, 1, "b", chain(10))
		b.pass(5 * time.Second)
		assert.Equal(t, map[string]int64{want: 40}, b.took())
	}
}

// While no look has an outcome, one that found nothing tells that engines may save nothing, rather than that the pool is too small.
func TestNotLookedAtYet(t *testing.T) {
	b, s := newLookBench(t, 1)
	b.askStore(s, 1, "a", chain(10))
	b.lookFor(40 * time.Second)
	ids := chain(30)[20:]
	b.askStore(s, 1, "a", ids)
	b.pass(5 * time.Second)
	b.account.looks.clear()
	b.pass(time.Minute)
	b.took()
	b.askStore(s, 1, "b", ids)
	b.pass(5 * time.Second)
	assert.Equal(t, map[string]int64{"saving": 40}, b.took())
}

// The second look comes before a pool that remembers for a minute or two has evicted what was saved after the first.
func TestLookAtASmallPool(t *testing.T) {
	b, s := newLookBench(t, 1)
	for range minRecalls {
		b.account.recall.add(b.now, int64(100*time.Second), false)
	}
	b.askStore(s, 1, "a", chain(10))
	b.lookFor(time.Minute)
	for _, id := range chain(10) {
		s.ranks[id] = 1
	}
	b.lookFor(100 * time.Second)
	clear(s.ranks)
	b.lookFor(6 * time.Minute)
	b.took()
	b.askStore(s, 1, "b", chain(10))
	b.pass(5 * time.Second)
	assert.Equal(t, map[string]int64{"evicted": 40}, b.took())
}

// Blocks that a small pool has evicted from some ranks are not partial; those that a rank has not saved are.
func TestLookAtWhatIsEvictedInPart(t *testing.T) {
	for name, of := range map[string]struct {
		first, last int           // ranks of the blocks that are looked for
		remembers   time.Duration // of the pool
		blocks      int
		want        string
	}{
		"a rank saves nothing":         {2, 2, 100 * time.Second, 10, "partial"},
		"some keys are evicted":        {1, 2, 100 * time.Second, 10, "evicted"},
		"of one block":                 {2, 2, 100 * time.Second, 1, "evicted"},
		"the pool remembers for hours": {1, 2, 2 * time.Hour, 10, "partial"},
	} {
		t.Run(name, func(t *testing.T) {
			b, s := newLookBench(t, 3)
			for range minRecalls {
				b.account.recall.add(b.now, int64(of.remembers), false)
			}
			ids := chain(of.blocks)
			b.askStore(s, 3, "a", ids)
			s.ranks[1], s.ranks[uint64(of.blocks)] = of.first, of.last
			b.lookFor(time.Minute)
			clear(s.ranks)
			b.took()
			b.askStore(s, 3, "b", ids)
			b.pass(5 * time.Second)
			assert.Equal(t, map[string]int64{of.want: int64(4 * of.blocks)}, b.took())
		})
	}
}

// Looks ask for at most 64 keys a second, also when far more requests come, some of which have blocks of hundreds of keys. What was
// not looked at has the shares of what was.
func TestLookBudget(t *testing.T) {
	for _, numRanks := range []int{1, 8, 300} {
		t.Run(fmt.Sprint(numRanks), func(t *testing.T) {
			b, s := newLookBench(t, numRanks)
			next, worst := uint64(1), 0
			for range 1_200 {
				for range 20 {
					ids := []uint64{next, next + 1, next + 2}
					b.askStore(s, numRanks, "a", ids)
					if next/3%4 != 0 { // a quarter is lost
						for _, id := range ids {
							s.ranks[id] = numRanks
						}
					}
					next += 3
				}
				before := s.numKeys
				b.lookFor(time.Second)
				worst = max(worst, (s.numKeys-before)*numRanks)
			}
			assert.LessOrEqual(t, worst, max(lookRate, 2*numRanks))
			assert.LessOrEqual(t, s.numKeys*numRanks, 1_201*lookRate+2*numRanks)
			assert.Greater(t, s.numKeys*numRanks, 600*lookRate, "it is used")
			assert.Zero(t, b.account.looks.dropped)
			recent := b.account.looks.shares.recent(b.now)
			lost := float64(recent[Unsaved]) / float64(recent.Total())
			assert.InDelta(t, 0.25, lost, map[int]float64{1: .06, 8: .15, 300: .4}[numRanks])
		})
	}
}

// The share of what was not saved beside the truth: the block that ends the hit was not whole since a request missed it that was closed
// more than 330 s ago. Saves come late, or not at all.
func TestReplay(t *testing.T) {
	requests := loadTrace(t, 1)
	for name, of := range map[string]struct {
		size  int // of the pool
		after time.Duration
		lost  int // every so many-th
	}{
		"after 10 s":                       {10_000, 10 * time.Second, 0},
		"after 60 s":                       {30_000, time.Minute, 0},
		"after 400 s":                      {0, 400 * time.Second, 0}, // what is saved after both looks and evicted is not seen
		"every third lost":                 {10_000, 5 * time.Second, 3},
		"every third lost in a small pool": {4_000, 5 * time.Second, 3},
	} {
		t.Run(name, func(t *testing.T) {
			got, want, total := replay(t, requests, of.size, of.after, of.lost, time.Hour/time.Duration(len(requests)))
			t.Logf("unsaved %.2f %%, truth %.2f %%", 100*got/total, 100*want/total)
			assert.LessOrEqual(t, 100*math.Abs(got-want)/total, 3.)
		})
	}
}

// savingPool is an LRU pool in which a prompt is saved some time after it was asked for or, every lost-th, never.
type savingPool struct {
	*lru
	after time.Duration
	lost  int
	saves []save
	asked int
}

type save struct {
	at  int64
	ids []uint64
}

// ask has a prompt saved later, of which the first found blocks are there.
func (p *savingPool) ask(now int64, ids []uint64, found int) {
	p.touch(ids[:found])
	if p.lost == 0 || p.asked%p.lost != 0 {
		p.saves = append(p.saves, save{now + int64(p.after), ids})
	}
	p.asked++
}

// advance saves what is due, and calls saved with the blocks of each prompt.
func (p *savingPool) advance(now int64, saved func(ids []uint64)) {
	for len(p.saves) > 0 && p.saves[0].at <= now {
		p.touch(p.saves[0].ids)
		saved(p.saves[0].ids)
		p.saves = p.saves[1:]
	}
}

// replay asks for prompts, one each step, over a pool in which they are saved later or, every lost-th, never. It returns the
// tokens that are unsaved by the account and by the truth, and those of all prompts.
func replay(t *testing.T, requests [][]uint64, size int, after time.Duration, lost int, step time.Duration) (got, want, total float64) {
	b, s := newLookBench(t, 1)
	pool := savingPool{lru: newLRU(size), after: after, lost: lost}
	s.pool = pool.lru
	firstMissed, asked := map[uint64]int64{}, map[uint64]bool{} // since it was whole
	for _, ids := range requests {
		pool.advance(b.now, func(ids []uint64) {
			for _, id := range ids {
				delete(firstMissed, id)
			}
		})
		found := pool.leading(ids, 0)
		known := found
		for k, id := range ids {
			if asked[id] {
				known = max(known, k+1)
			}
			asked[id] = true
		}
		if known > found {
			first := firstMissed[ids[found]]
			if first != 0 && b.now-first > int64(askGap+330*time.Second) {
				want += float64(4 * (known - found))
			}
		}
		for _, id := range ids[:found] {
			delete(firstMissed, id)
		}
		for _, id := range ids[found:] {
			if firstMissed[id] == 0 {
				firstMissed[id] = b.now
			}
		}
		b.askStore(s, 1, "a", ids)
		pool.ask(b.now, ids, found)
		total += float64(4 * len(ids))
		b.lookFor(step)
	}
	b.account.close()
	return float64(b.account.counts[Unsaved]), want, total
}

// RunLooks makes looks each second, ends with its context, and waits for no other pool's account.
func TestRunLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		s := NewAccounts(Config{Now: func() int64 { return int64(time.Since(began)) + 1 }})
		var asked atomic.Int64
		a := s.Open(Pool{HashBlock: 4, SchedulerBlock: 4, NumRanks: []int{1}, Strides: []int{1}, Ranks: []uint64{1}, FullRanks: 1,
			Keys: func(int64) int64 { return 0 }, Reachable: func(Prompt, int) int64 { return 0 },
			Look: func(ctx context.Context, m *Missing) ([]int, error) {
				asked.Add(int64(m.Hashes.Len()))
				time.Sleep(100 * time.Millisecond)
				return make([]int, m.Hashes.Len()), ctx.Err()
			},
			Size:      func(context.Context) (int64, error) { return 1000, nil },
			FirstLook: 2 * time.Second, SecondLook: 10 * time.Second})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			s.RunLooks(ctx)
			close(ended)
		}()
		go s.Run(ctx)
		r := a.NewAsk("a", Prompt{NumTokens: 16, NumHashes: 4})
		r.AddHashes(hashesOf(chain(4)), 32)
		r.Answered, r.Missing = true, newPretendStore().missing(chain(1))
		s.NewRecorder().Record(r, s.cfg.Now())
		time.Sleep(askGap + 2*time.Second)
		require.Zero(t, asked.Load())
		time.Sleep(3 * time.Second)
		require.EqualValues(t, 1, asked.Load())
		time.Sleep(12 * time.Second)
		require.EqualValues(t, 2, asked.Load())
		cancel()
		<-ended
		require.EqualValues(t, 1000, a.size)
	})
}
