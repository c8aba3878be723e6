package tokens

import (
	"container/list"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/bench/workload"
)

type lru struct {
	capacity int
	of       map[uint64]*list.Element
	order    *list.List
}

func newLRU(n int) *lru { return &lru{n, map[uint64]*list.Element{}, list.New()} }
func (l *lru) has(id uint64) bool {
	_, ok := l.of[id]
	return ok
}

// leading returns how many leading blocks of a prompt it has, those before start included.
func (l *lru) leading(ids []uint64, start int) int {
	for start < len(ids) && l.has(ids[start]) {
		start++
	}
	return start
}

func (l *lru) touch(ids []uint64) {
	for i := len(ids) - 1; i >= 0; i-- {
		if e := l.of[ids[i]]; e != nil {
			l.order.MoveToFront(e)
		} else {
			l.of[ids[i]] = l.order.PushFront(ids[i])
		}
	}
	for l.capacity > 0 && l.order.Len() > l.capacity {
		e := l.order.Back()
		delete(l.of, e.Value.(uint64))
		l.order.Remove(e)
	}
}

// loadTrace returns the blocks of the prompts of a trace, each of which is split into some. HITLINE_TEST_TRACE may name one, in
// lines of JSON with hash_ids. Otherwise it is made up: conversations that go on, most of which begin with the same block.
func loadTrace(t testing.TB, split int) (requests [][]uint64) {
	for _, of := range blocksOfTrace(t) {
		var ids []uint64
		for _, id := range of {
			for k := range split {
				ids = append(ids, id*uint64(split)+uint64(k))
			}
		}
		requests = append(requests, ids)
	}
	return requests
}

func blocksOfTrace(t testing.TB) (requests [][]uint64) {
	path := os.Getenv("HITLINE_TEST_TRACE")
	if path == "" {
		return madeUpTrace(6_000)
	}
	require.NoError(t, workload.Trace(path).Requests(t.Context(), workload.BlockTokens, 0, func(r workload.Request) error {
		requests = append(requests, r.IDs)
		return nil
	}))
	return requests
}

func madeUpTrace(n int) (requests [][]uint64) {
	rng := rand.New(rand.NewPCG(11, 12))
	next := uint64(1)
	var open [][]uint64
	for range n {
		var ids []uint64
		if len(open) > 0 && rng.IntN(2) == 0 {
			at := rng.IntN(len(open))
			ids, open = open[at], append(open[:at:at], open[at+1:]...)
		} else if rng.IntN(4) > 0 {
			ids = []uint64{0}
		}
		ids = ids[:len(ids):len(ids)]
		for range 1 + int(rng.ExpFloat64()*12) {
			ids = append(ids, next)
			next++
		}
		requests, open = append(requests, ids), append(open, ids)
		if len(open) > 2_000 {
			open = open[1:]
		}
	}
	return requests
}

func hashesOf(ids []uint64) []byte {
	b := make([]byte, 0, 32*len(ids))
	for _, id := range ids {
		var h [32]byte
		binary.BigEndian.PutUint64(h[:], id*0xD1342543DE82EF95+1)
		binary.BigEndian.PutUint64(h[8:], id*0xA0761D6478BD642F+7)
		binary.BigEndian.PutUint64(h[24:], id*0xE7037ED1A0B428DB+9)
		b = append(b, h[:]...)
	}
	return b
}

// The places of a trace's tokens beside those that an exact memory gives, while all blocks fit and while few do, and the hit
// shares of pools of other sizes beside those of these pools.
func TestTrace(t *testing.T) {
	sizes := []int{500, 2_000, 8_000, 32_000}
	splits := []int{1, 8}
	if testing.Short() {
		splits = splits[:1]
	}
	for _, split := range splits {
		asks := wholePrompts(loadTrace(t, split))
		shares := map[int]float64{}
		for _, size := range sizes {
			_, want := exactCounts(asks, size*split, false)
			shares[size] = float64(want[InPool]) / float64(want.Total())
		}
		cases := []traceCase{{500, 64 << 20, 0}, {2_000, 64 << 20, 0}, {8_000, 64 << 20, 0}, {2_000, 1 << 20, 1.5}, {8_000, 1 << 20, 1.5}}
		if split > 1 { // prompts have more blocks than are sampled
			cases = []traceCase{{500, 64 << 20, .1}, {8_000, 64 << 20, .1}, {2_000, 4 << 20, .5}}
		}
		for _, c := range cases {
			t.Run(fmt.Sprintf("%d blocks of %d parts, %d KiB", c.size, split, c.maxBytes>>10), func(t *testing.T) {
				account, want := accountOf(asks, c.size*split, split, c.maxBytes, 5*time.Second)
				got, total := account.counts, float64(want.Total())
				lost := int64(0)
				for p := Emptied; p <= Unsaved; p++ {
					lost += got[p]
				}
				for name, off := range map[string]int64{"pool": got[InPool] - want[InPool], "lost": lost - want[Evicted], "new": got[New] - want[New]} {
					assert.LessOrEqual(t, math.Abs(100*float64(off)/total), c.most, name)
				}
				worst := 0.
				for size, share := range shares {
					worst = max(worst, math.Abs(100*(account.curve.hitShare(float64(size*split))-share)))
				}
				t.Logf("share %.3f, curve off by at most %.2f points", share(account.table.threshold), worst)
				assert.Less(t, worst, 4.)
			})
		}
	}
}

// The curve at the pool's size is what the pool gives, also if its lookups lack the last token, so that the rules take a scheduler
// block of each prompt; resets make no pool seem too small; and sizes are multiples once the size is known.
func TestCurveAtTodaysSize(t *testing.T) {
	requests := loadTrace(t, 1)
	for name, of := range map[string]struct {
		scheduler int // blocks
		resets    bool
	}{"plain": {1, false}, "long scheduler blocks": {2, false}, "resets": {1, true}} {
		t.Run(name, func(t *testing.T) {
			const block, size = 512, 8_000
			scheduler := int64(of.scheduler) * block
			reachable := func(p Prompt, blocks int) int64 {
				n := min(int64(blocks)*block, p.NumTokens-1)
				return n - n%scheduler
			}
			a := newAccount(Pool{HashBlock: block, SchedulerBlock: scheduler, Keys: func(int64) int64 { return 0 }, Reachable: reachable}, 64<<20, 1, func(int) bool { return true })
			recorder := NewAccounts(Config{Now: func() int64 { return 1 }}).NewRecorder()
			pool := newLRU(size)
			for i, ids := range requests {
				at := int64(i+1) * int64(5*time.Second)
				if of.resets && i%1000 == 999 {
					pool = newLRU(size)
					recorder.Record(a.NewEmptied(true), at)
				}
				found := pool.leading(ids, 0)
				p := Prompt{NumTokens: int64(len(ids)) * block, NumHashes: len(ids)}
				r := a.NewAsk("a", p)
				r.AddHashes(hashesOf(ids), 32)
				r.Answered, r.Hit, r.Found, r.Whole = true, reachable(p, found), found, found
				recorder.Record(r, at)
				recorder.accounts.Flush()
				pool.touch(ids)
			}
			a.close()
			a.size = size
			sizes := a.curve.multiplesOf(a.size)
			require.Len(t, sizes, 6)
			t.Logf("measured %.4f, curve %v", a.curve.measured(), sizes)
			assert.Equal(t, "1", sizes[2].Size)
			assert.EqualValues(t, size, sizes[2].Blocks)
			assert.InDelta(t, a.curve.measured(), sizes[2].HitShare, 0.005)
		})
	}
}

// traceCase is a pool of some blocks, the memory of an account, and how many points its places may be off.
type traceCase struct {
	size, maxBytes int
	most           float64
}

// traceAsk is what an engine asks for: a prompt from a start on. Of one that it holds whole it does not ask.
type traceAsk struct {
	asker string
	start int // block
	ids   []uint64
}

func (a *traceAsk) isAsked() bool { return a.start < len(a.ids) }

// wholePrompts returns asks for prompts from their first block on, by so many askers that equal prompts are requests of their own.
func wholePrompts(requests [][]uint64) (asks []traceAsk) {
	for i, ids := range requests {
		asks = append(asks, traceAsk{strconv.Itoa(i % maxAskers), 0, ids})
	}
	return asks
}

// promptsOfEngines returns what engines ask for that take prompts in turn, each of which has a cache of some blocks.
func promptsOfEngines(requests [][]uint64, engines, cache int) (asks []traceAsk) {
	caches := map[string]*lru{}
	for i, ids := range requests {
		asker := strconv.Itoa(i % engines)
		if caches[asker] == nil {
			caches[asker] = newLRU(cache)
		}
		asks = append(asks, traceAsk{asker, caches[asker].leading(ids, 0), ids})
		caches[asker].touch(ids)
	}
	return asks
}

// exactCounts returns the counts of blocks over an LRU pool of a size, and the finds of each ask. The pool is refreshed by what is
// asked for or, with whole, by all blocks of all prompts.
func exactCounts(asks []traceAsk, size int, whole bool) (found []int, counts Counts) {
	pool, asked := newLRU(size), map[uint64]bool{}
	for i := range asks {
		a := &asks[i]
		hit := pool.leading(a.ids, a.start)
		found = append(found, hit)
		if a.isAsked() {
			known := hit
			for i, id := range a.ids[a.start:] {
				if asked[id] {
					known = max(known, a.start+i+1)
				}
				asked[id] = true
			}
			counts[Engine] += int64(a.start)
			counts[InPool] += int64(hit - a.start)
			counts[Evicted] += int64(known - hit)
			counts[New] += int64(len(a.ids) - known)
		}
		if whole {
			pool.touch(a.ids)
		} else {
			pool.touch(a.ids[a.start:])
		}
	}
	return found, counts
}

// accountOf returns the account of asks over an LRU pool of a size, one each step, and the exact counts, in tokens.
func accountOf(asks []traceAsk, size, split, maxBytes int, step time.Duration) (*Account, Counts) {
	block := int64(512 / split)
	a := newAccount(Pool{HashBlock: block, SchedulerBlock: block, Keys: func(int64) int64 { return 0 }, Reachable: func(p Prompt, blocks int) int64 {
		return min(int64(blocks)*block, p.NumTokens-p.NumTokens%block)
	}}, maxBytes, 1, func(int) bool { return true })
	recorder := NewAccounts(Config{Now: func() int64 { return 1 }}).NewRecorder()
	found, want := exactCounts(asks, size, false)
	for i := range asks {
		if ask := &asks[i]; ask.isAsked() {
			recorder.Record(ask.of(a, block, found[i]), int64(i+1)*int64(step))
			recorder.accounts.Flush()
		}
	}
	a.tick(int64(len(asks)+1)*int64(step) + int64(askGap))
	for p := range want {
		want[p] *= block
	}
	return a, want
}

// of returns the ask for an account with blocks of some tokens, of which the first found are in the pool.
func (a *traceAsk) of(account *Account, block int64, found int) *Event {
	n := len(a.ids)
	r := account.NewAsk(a.asker, Prompt{NumTokens: int64(n) * block, Start: int64(a.start) * block, NumHashes: n - a.start})
	r.AddHashes(hashesOf(a.ids[a.start:]), 32)
	r.Answered, r.Hit, r.Found, r.Whole = true, int64(found)*block, found, found
	return r
}
