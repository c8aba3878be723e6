package tokens

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
)

// bench is an account over one full-attention group of blocks of 4 tokens whose time the test moves.
type bench struct {
	t        testing.TB
	account  *Account
	recorder *Recorder
	now      int64
}

func newBench(t testing.TB, stores bool, maxBytes int) *bench {
	b := &bench{t: t, recorder: NewAccounts(Config{Now: func() int64 { return 1 }}).NewRecorder(), now: 1}
	pool := Pool{HashBlock: 4, SchedulerBlock: 4, Stores: stores, FullRanks: 1, Ranks: []uint64{1}, Strides: []int{1}, FullStride: 1,
		Keys: func(int64) int64 { return 0 }, Reachable: func(p Prompt, blocks int) int64 { return min(int64(blocks)*4, p.NumTokens-p.NumTokens%4) }}
	b.account = newAccount(pool, maxBytes, b.now, func(int) bool { return true })
	return b
}

// ask asks for a prompt of whole blocks, of which the first found are in the pool.
func (b *bench) ask(asker string, ids []uint64, found int) {
	r := b.account.NewAsk(asker, Prompt{NumTokens: int64(4 * len(ids)), NumHashes: len(ids)})
	r.AddHashes(hashesOf(ids), 32)
	r.Answered, r.Hit, r.Found, r.Whole = true, int64(4*found), found, found
	b.recorder.Record(r, b.now)
	b.recorder.accounts.Flush()
}

func (b *bench) store(ids []uint64) {
	r := b.account.NewChange(0, len(ids), false)
	r.AddHashes(hashesOf(ids), 32)
	b.recorder.Record(r, b.now)
	b.recorder.accounts.Flush()
}

func (b *bench) pass(d time.Duration) {
	b.now += int64(d)
	b.account.tick(b.now)
}

// took returns the counts since the last call, without those of 0.
func (b *bench) took() map[string]int64 {
	got := map[string]int64{}
	for p, n := range b.account.counts {
		if n != 0 {
			got[Place(p).String()] = n
		}
	}
	b.account.counts = Counts{}
	return got
}

func chain(n int) (ids []uint64) {
	for i := range n {
		ids = append(ids, uint64(i+1))
	}
	return ids
}

// TestSplit: no interval is negative, and their sum is T, whatever a peer sends.
func TestSplit(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	number := func() int64 {
		return []int64{0, 1, 16, rng.Int64N(100), rng.Int64N(1 << 21), 4_000_000_000, rng.Int64N(1 << 32)}[rng.IntN(7)]
	}
	for range 100_000 {
		pool := Pool{HashBlock: 1 + rng.Int64N(64)}
		pool.SchedulerBlock = pool.HashBlock * (1 + rng.Int64N(4))
		p := Prompt{NumTokens: number(), NumHashes: int(min(number(), 1<<21))}
		p.Start = min(number(), p.NumTokens)
		p.Start -= p.Start % pool.SchedulerBlock
		b := p.bounds(&pool)
		hit, known, reachable := number(), number(), number()
		hashed := p.Start + int64(p.NumHashes)*pool.HashBlock
		want := min(p.NumTokens, max(p.Start, hashed)+pool.SchedulerBlock)
		for _, s := range []split{splitAnswered(b, hit, known, reachable), splitUnanswered(b)} {
			sum := int64(0)
			for _, n := range []int64{s.engine, s.pool, s.lost, s.rules, s.new, s.noAnswer} {
				require.GreaterOrEqual(t, n, int64(0), "%+v %+v %d %d %d", p, pool, hit, known, reachable)
				sum += n
			}
			require.Equal(t, want, sum)
		}
	}
}

// A canary that eight engines send every 5 s for an hour is 5,760 requests, and a prompt that one asks for every second is
// counted every 10 minutes.
func TestRequests(t *testing.T) {
	b := newBench(t, true, 1<<20)
	ids := chain(10)
	for range 720 {
		for _, asker := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
			b.ask(asker, ids, 10)
		}
		b.pass(5 * time.Second)
	}
	b.pass(time.Minute)
	assert.Equal(t, map[string]int64{"pool": 5760 * 40}, b.took())

	for range 3600 {
		b.ask("a", ids, 10)
		b.pass(time.Second)
	}
	assert.Equal(t, int64(5*40), b.took()["pool"], "the sixth is open")
	b.pass(time.Minute)
	assert.Equal(t, int64(40), b.took()["pool"])
}

// What is known is fixed at the first ask, what is found at the last.
func TestFirstAndLastAsk(t *testing.T) {
	b := newBench(t, true, 1<<20)
	ids := chain(10)
	b.ask("a", ids, 0)
	b.pass(time.Second)
	b.ask("a", ids, 4)
	b.pass(time.Minute)
	assert.Equal(t, map[string]int64{"pool": 16, "new": 24}, b.took())
}

// A block whose puts fail is new once. It is being saved until its first request was closed 30 s ago, not for as long as
// somebody asks.
func TestHotBlockThatIsNeverSaved(t *testing.T) {
	b := newBench(t, true, 1<<20)
	for i := range 6000 { // ten times a second for ten minutes, by 200 engines in turn
		b.ask(string(rune('a'+i%200)), chain(10), 0)
		b.pass(100 * time.Millisecond)
	}
	b.pass(time.Hour)
	got := b.took()
	assert.Equal(t, int64(40), got["new"])
	assert.Equal(t, int64(0), got["evicted"])
	assert.Equal(t, int64(6000*40-40), got["saving"]+got["unsaved"])
	assert.InDelta(t, 34./600, float64(got["saving"])/float64(6000*40), 0.01)
}

// After the store was emptied a block is emptied once, and evicted when it was whole again.
func TestEmptiedOnce(t *testing.T) {
	b := newBench(t, true, 1<<20)
	ids := chain(10)
	b.ask("a", ids, 0)
	b.store(ids)
	b.pass(time.Minute)
	b.took()
	b.recorder.Record(b.account.NewEmptied(true), b.now)
	b.recorder.accounts.Flush()
	b.ask("a", ids, 0)
	b.store(ids)
	b.pass(time.Minute)
	assert.Equal(t, map[string]int64{"emptied": 40}, b.took())
	b.ask("a", ids, 0)
	b.pass(time.Minute)
	assert.Equal(t, map[string]int64{"evicted": 40}, b.took())
}

// A block that two hashes stand for is stored by the second.
func TestBlocksOfTwoHashes(t *testing.T) {
	b := newBench(t, true, 1<<20)
	b.account.pool.FullStride = 2
	ids := chain(10)
	b.ask("a", ids, 0)
	b.pass(time.Minute)
	b.store([]uint64{2, 4, 6, 8, 10})
	b.pass(time.Hour)
	b.took()
	b.ask("b", ids, 4)
	b.pass(time.Minute)
	assert.Equal(t, map[string]int64{"pool": 16, "evicted": 24}, b.took())
}

// A store of many blocks is remembered whole.
func TestStoreOfManyBlocks(t *testing.T) {
	b := newBench(t, true, 1<<20)
	ids := chain(2000)
	for at := 0; at < 2000; at += 200 {
		b.ask(fmt.Sprint(at), ids[:at+200], 0)
		b.pass(time.Minute)
	}
	b.store(ids)
	b.took()
	b.ask("b", ids[:1000], 0)
	b.pass(time.Minute)
	assert.Equal(t, map[string]int64{"evicted": 4000}, b.took())
}

// Without a table the known blocks are unknown, and the sums are right.
func TestNoMemory(t *testing.T) {
	b := newBench(t, true, 1<<20)
	b.account.reserve = func(int) bool { return false }
	for range 3 {
		b.ask("a", chain(10), 5)
		b.pass(time.Minute)
	}
	assert.Equal(t, map[string]int64{"pool": 60, "new": 60}, b.took())
}

// The share of first blocks that others asked for is near 0 for an engine that hashes otherwise.
func TestFirstBlocks(t *testing.T) {
	b := newBench(t, true, 1<<20)
	rng := rand.New(rand.NewPCG(5, 6))
	for range 200 {
		prompt := rng.Uint64N(8)
		b.ask("a", []uint64{prompt + 1}, 0)
		b.ask("b", []uint64{prompt + 1}, 0)
		b.ask("other seed", []uint64{prompt + 100}, 0)
		b.pass(11 * time.Second)
	}
	s := &b.account.askers
	for name, want := range map[string]float64{"a": 1, "b": 1, "other seed": 0} {
		share, ok := s.sharedFirstBlocks(s.byName[name], b.now)
		assert.True(t, ok)
		assert.InDelta(t, want, share, 0.1, name)
	}
	_, ok := s.sharedFirstBlocks(s.byName["a"], b.now+int64(2*time.Hour))
	assert.False(t, ok, "nothing in the last hour")
}

// Forty-eight hours at a thousand new blocks a second: the table stays bounded, and the errors of the last hour are those of
// the first.
func TestTwoDays(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes some seconds")
	}
	hours := 2
	if text := os.Getenv("HITLINE_TEST_HOURS"); text != "" {
		var err error
		hours, err = strconv.Atoi(text)
		require.NoError(t, err)
	}
	b := newBench(t, false, DefaultMaxBytes)
	pool := newLRU(200_000) // remembers some minutes
	rng := rand.New(rand.NewPCG(7, 8))
	next := uint64(0)
	var recent [][]uint64
	errors := make([]float64, hours)
	for h := range hours {
		var lost, asked int64
		for range 3600 / 2 {
			b.pass(time.Second)
			var ids []uint64
			if len(recent) > 0 && rng.IntN(3) == 0 { // a prompt of the last hour goes on
				ids = append(ids, recent[rng.IntN(len(recent))]...)
			}
			known := len(ids)
			for range 2000 {
				next++
				ids = append(ids, next)
			}
			if recent = append(recent, ids[:min(len(ids), 3000)]); len(recent) > 1800 {
				recent = recent[1:]
			}
			found := 0
			for found < len(ids) && pool.has(ids[found]) {
				found++
			}
			lost += int64(max(0, known-found))
			asked += int64(len(ids))
			b.ask("a", ids, found)
			pool.touch(ids)
			b.pass(time.Second)
		}
		got := b.account.counts
		b.took()
		told := (got[Evicted] + got[Saving] + got[Emptied]) / 4
		errors[h] = 100 * float64(told-lost) / float64(asked)
	}
	t.Log(errors, b.account.table.count(), float64(b.account.table.threshold)/(1<<64), time.Duration(b.account.recall.remembers()))
	assert.InDelta(t, 0, errors[0], 2)
	assert.InDelta(t, 0, errors[hours-1], 2)
}

// A flood of random prompts over many pools takes no more memory than the account says, which is within its bound, and gives all of it back.
func TestFloodOfPools(t *testing.T) {
	const maxBytes, numPools = 16 << 20, 64
	reserved := 0
	s := NewAccounts(Config{Now: func() int64 { return 1 }, MaxTotalBytes: maxBytes,
		Reserve: func(n int64) bool { reserved += int(n); return true }, Free: func(n int64) { reserved -= int(n) }})
	recorder := s.NewRecorder()
	pool := newBench(t, false, 0).account.pool
	pool.NumRanks, pool.Look = []int{1}, newPretendStore().look
	before := heapBytes()
	var pools []*Account
	for range numPools {
		pools = append(pools, s.Open(pool))
	}
	rng := rand.New(rand.NewPCG(9, 10))
	for i := range 32 * numPools {
		a, ids := pools[i%numPools], make([]uint64, 256)
		for k := range ids {
			ids[k] = rng.Uint64()
		}
		r := a.NewAsk(strconv.Itoa(i), Prompt{NumTokens: int64(4 * len(ids)), NumHashes: len(ids)})
		r.AddHashes(hashesOf(ids), 32)
		r.Answered, r.Missing = true, Missing{Groups: make([]int, 4), Hashes: coordinator.NewHashes(hashesOf(ids[:4]), 32)}
		recorder.Record(r, int64(i+1)*int64(10*time.Millisecond))
		s.Flush()
		require.LessOrEqual(t, reserved, maxBytes)
	}
	require.Greater(t, reserved, maxBytes*3/4, "it is used")
	require.LessOrEqual(t, heapBytes()-before, reserved+1<<20)
	t.Log(heapBytes()-before, reserved)
	for _, a := range pools {
		s.Close(a)
	}
	require.Zero(t, reserved)
}

// heapBytes returns what is reachable on the heap.
func heapBytes() int {
	runtime.GC()
	runtime.GC() // what a sync.Pool keeps
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}
