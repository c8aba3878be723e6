package tokens

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/lookup"
)

// The account of a trace over a bounded memory index, whose hits are its own, beside what is known of each prompt.
func TestOverTheIndex(t *testing.T) {
	type testCase struct {
		size, split int
		vllm        string
		maxBytes    int
		most        float64 // points that places may be off; 0: exact for each prompt of few blocks
	}
	cases := []testCase{{2_000, 1, "", 16 << 20, 0}, {2_000, 1, coordinator.NewestRelease(), 16 << 20, 0}}
	if !testing.Short() {
		cases = nil
		for _, size := range []int{1_000, 10_000, 30_000, 100_000} {
			cases = append(cases,
				testCase{size, 1, "", 16 << 20, 0}, testCase{size, 1, coordinator.NewestRelease(), 16 << 20, 0},
				testCase{size, 8, "", 64 << 20, .5},
				testCase{size, 1, "", DefaultMaxBytes, .5}, testCase{size, 8, "", DefaultMaxBytes, .5},
				testCase{size, 1, "", bytesOf(16_000), 1.5}, testCase{size, 8, "", bytesOf(16_000), 1.5})
		}
	}
	requests := map[int][][]uint64{1: loadTrace(t, 1)}
	for _, c := range cases {
		if requests[c.split] == nil {
			requests[c.split] = loadTrace(t, c.split)
		}
		t.Run(fmt.Sprintf("%d blocks of %d tokens %s, %d KiB", c.size*c.split, 512/c.split, c.vllm, c.maxBytes>>10), func(t *testing.T) {
			o := newIndexReplay(t, c.size*c.split, 512/c.split, c.vllm, c.maxBytes)
			total, off := int64(0), Counts{}
			for i, ids := range requests[c.split] {
				before := o.account.counts
				want := o.ask(ids)
				o.pass()
				for p := range want {
					got := o.account.counts[p] - before[p]
					off[p] += got - want[p]
					if c.most == 0 && len(ids) <= maxSamples {
						require.Equal(t, want[p], got, "request %d of %d blocks, %s", i, len(ids), Place(p))
					}
				}
				total += want.Total()
			}
			told := ""
			for p, n := range off {
				points := 100 * float64(n) / float64(total)
				if n != 0 {
					told += fmt.Sprintf(" %s %.3f", Place(p), points)
				}
				if c.most > 0 {
					assert.LessOrEqual(t, math.Abs(points), c.most, Place(p).String())
				}
			}
			t.Logf("hit share %.2f %%, share %.3f, points off:%s", 100*o.account.curve.measured(), share(o.account.table.threshold), told)
		})
	}
}

// indexReplay asks a service over a memory index for prompts, and stores them, as an engine and hitbench replay do.
type indexReplay struct {
	*bench
	service *lookup.Service
	block   int64
	asked   map[uint64]bool
}

func newIndexReplay(t *testing.T, size, block int, vllm string, maxBytes int) *indexReplay {
	service, err := lookup.NewService(lookup.ServiceConfig{
		Pool: coordinator.Pool{VLLM: vllm, HashBlockSize: block}, Memory: index.Config{MaxEntries: int64(size)},
	})
	require.NoError(t, err)
	o := &indexReplay{bench: newBench(t, true, maxBytes), service: service, block: int64(block), asked: map[uint64]bool{}}
	pool := o.account.pool
	pool.HashBlock, pool.SchedulerBlock = int64(block), int64(service.Pool().SchedulerBlockSize)
	var scratch coordinator.Scratch
	pool.Reachable = func(p Prompt, blocks int) int64 {
		return service.Coordinator().PrefixHit(p.NumTokens, p.NumHashes, blocks, &scratch)
	}
	o.account = newAccount(pool, maxBytes, o.now, func(int) bool { return true })
	return o
}

// ask asks for a prompt and stores it. It returns where its tokens should have gone.
func (o *indexReplay) ask(ids []uint64) (want Counts) {
	hashes, numTokens := hashesOf(ids), int64(len(ids))*o.block
	q := o.service.Memory().NewQuery()
	defer q.Release()
	wanted, err := q.Begin(uint64(numTokens), false, 0, 32, len(ids))
	require.NoError(o.t, err)
	if wanted {
		q.Add(hashes)
	}
	hit, err := q.Finish()
	require.NoError(o.t, err)
	r := o.account.NewAsk("a", Prompt{NumTokens: numTokens, NumHashes: len(ids)})
	r.AddHashes(hashes, 32)
	ending := q.Ending(hit)
	r.Fill(hit.Tokens, ending)
	o.recorder.Record(r, o.now)
	o.recorder.accounts.Flush()
	require.NoError(o.t, o.service.Store(o.t.Context(), coordinator.GroupRank{}, coordinator.NewHashes(hashes, 32)))
	o.store(ids)

	known := ending.Found // blocks of which the pool has some and has evicted others, or nobody asked
	for i, id := range ids {
		if o.asked[id] {
			known = max(known, i+1)
		}
		o.asked[id] = true
	}
	most := numTokens
	if o.service.Coordinator().HasTailBoundaries() { // the last token is computed anew
		most -= o.block
	}
	end := int64(known) * o.block
	reach := max(hit.Tokens, min(end, most))
	want[InPool], want[Evicted] = hit.Tokens, reach-hit.Tokens
	want[Rules], want[New] = max(reach, end)-reach, numTokens-max(reach, end)
	return want
}

// pass closes what is open.
func (o *indexReplay) pass() { o.bench.pass(5 * time.Second) }
