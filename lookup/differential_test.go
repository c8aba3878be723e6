package lookup

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/backend"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/internal/oracle"
	"github.com/hitline/hitline/lookup/api"
)

// poolsEnv is the number of pools of the long form of TestEveryWayAgainstTheOracle.
const poolsEnv = "HITLINE_TEST_POOLS"

// TestEveryWayAgainstTheOracle asks random pools about random prompts in every way there
// is: the memory service with its hashes in pieces, one call of a store, rounds of calls. Each
// must say what the oracle says, which shares no code with any of them.
func TestEveryWayAgainstTheOracle(t *testing.T) {
	pools := int64(4000)
	if text := os.Getenv(poolsEnv); text != "" {
		var err error
		pools, err = strconv.ParseInt(text, 10, 64)
		require.NoError(t, err)
	} else if lookuptest.Race || testing.Short() {
		pools = 300
	}
	var group sync.WaitGroup
	var seed atomic.Int64
	var asked, onSomeRanks atomic.Int64
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() {
			for n := seed.Add(1); n <= pools && !t.Failed(); n = seed.Add(1) {
				d := &differential{t: t, seed: uint64(n), Rand: rand.New(rand.NewPCG(uint64(n), 14)), explained: map[bool]int64{}}
				d.run()
				asked.Add(d.asked)
				onSomeRanks.Add(d.explained[false])
			}
		})
	}
	group.Wait()
	t.Logf("%d pools, %d requests", pools, asked.Load())
	require.Greater(t, asked.Load(), pools)
	require.Positive(t, onSomeRanks.Load())
}

// differential is one pool with what is stored of one chain.
type differential struct {
	*rand.Rand
	t    *testing.T
	seed uint64

	slow    oracle.Pool
	coord   *coordinator.Coordinator
	hashes  []byte // joined, of hashLen bytes each
	content oracle.Content
	numbers map[string]int
	service *Service
	remote  *Service // over a store of the same content

	first     int // hash at which the lookup begins; none before it may be asked
	asked     int64
	explained map[bool]int64 // groups with a missing block: whether all ranks lack it
}

// diffHashLen is the length of a hash in bytes.
const diffHashLen = 8

func (d *differential) run() {
	d.slow = oracle.RandomPool(d.Rand)
	pool, text := d.pool()
	var err error
	d.coord, err = coordinator.New(pool)
	require.NoError(d.t, err, "seed %d: %s", d.seed, text)
	d.setRanks()
	n := oracle.RandomChainLen(d.Rand, &d.slow)
	d.numbers = map[string]int{}
	for i := range n {
		d.hashes = binary.BigEndian.AppendUint64(d.hashes, d.seed<<16|uint64(i+1)<<4|uint64(d.IntN(16)))
		d.numbers[string(d.hash(i))] = i
	}
	d.content = oracle.RandomContent(d.Rand, &d.slow, n)
	d.service, err = NewService(ServiceConfig{Pool: pool, Memory: index.Config{MaxBytes: index.MinMaxBytes}})
	require.NoError(d.t, err)
	d.remote, err = NewService(ServiceConfig{Pool: pool, Backend: &oracleStore{d: d}, Remote: patient})
	require.NoError(d.t, err)
	d.store(n)
	for range 6 {
		d.lookup(n)
	}
}

// setRanks tells the oracle the ranks of the groups.
func (d *differential) setRanks() { d.slow.SetRanks(oracleRanks(d.coord)) }

// oracleRanks returns the ranks of each store group.
func oracleRanks(c *coordinator.Coordinator) (ranks [][]oracle.Rank) {
	for g := range c.NumGroups() {
		ranks = append(ranks, nil)
		for _, r := range c.Ranks(g) {
			ranks[g] = append(ranks[g], oracle.Rank{TP: r.TP, PP: r.PP, PCP: r.PCP})
		}
	}
	return ranks
}

// pool returns the configuration of the coordinator, and its JSON.
func (d *differential) pool() (pool coordinator.Pool, text []byte) {
	text, err := json.Marshal(d.slow)
	require.NoError(d.t, err)
	require.NoError(d.t, json.Unmarshal(text, &pool))
	return pool, text
}

func (d *differential) hash(i int) []byte { return d.hashes[i*diffHashLen : (i+1)*diffHashLen] }

// fail tells how to see a difference again.
func (d *differential) fail(format string, args ...any) {
	pool, _ := json.Marshal(d.slow)
	d.t.Errorf("seed %d, pool %s\ncontent %v\n%s", d.seed, pool, d.content, fmt.Sprintf(format, args...))
}

// store gives the service what the content has.
func (d *differential) store(n int) {
	has := d.content.Has(&d.slow, d.numbers)
	for number, g := range d.slow.StoreGroups() {
		stride := d.coord.KeyStride(number)
		for _, at := range d.slow.Ranks(g) {
			place := coordinator.GroupRank{Group: uint16(number), TPRank: uint16(at.TP), PPRank: uint16(at.PP), PCPRank: uint16(at.PCP)}
			for i := range n / stride {
				key := d.hash(i*stride + stride - 1)
				if has(g, at, string(key)) {
					require.NoError(d.t, d.service.Store(context.Background(), place, coordinator.NewHashes(key, diffHashLen)))
				}
			}
		}
	}
}

// lookup asks for a prefix of the chain in every way.
func (d *differential) lookup(n int) {
	hashes := n
	if d.IntN(2) == 0 {
		hashes = d.IntN(n + 1)
	}
	tokens := hashes * d.slow.HashBlockSize
	if d.IntN(2) == 0 {
		tokens = d.IntN(tokens + 3*d.slow.SchedulerBlockSize)
	}
	if d.coord.NeedsAligned() && d.IntN(8) > 0 {
		tokens -= tokens % d.slow.SchedulerBlockSize
	}
	list := make([]string, hashes)
	for i := range list {
		list[i] = string(d.hash(i))
	}
	start := d.start(min(tokens, hashes*d.slow.HashBlockSize))
	d.first = start / d.slow.HashBlockSize
	want, boundaries, class := d.slow.LookupTails(start, tokens, list, d.content.Has(&d.slow, d.numbers))
	view := coordinator.NewHashes(d.hashes[d.first*diffHashLen:hashes*diffHashLen], diffHashLen).From(int64(start))
	check := func(way string, hit int64, err error) {
		if classOf(err) != class || err == nil && hit != int64(want) {
			d.fail("%d hashes, %d tokens from %d: %s %d (%v), want %d %s", hashes, tokens, start, way, hit, err, want, class)
		}
	}
	checkTails := func(way string, tails []coordinator.TailBoundary, err error) {
		var got []oracle.Boundary
		for _, tail := range tails {
			got = append(got, oracle.Boundary{Group: tail.Group, Tokens: int(tail.Tokens)})
		}
		if err == nil && !slices.Equal(got, boundaries) {
			d.fail("%d hashes, %d tokens from %d: %s: boundaries %v, want %v", hashes, tokens, start, way, got, boundaries)
		}
	}
	d.asked++
	for _, piece := range []int{max(1, view.Len()), 1, 1 + d.IntN(8)} {
		answer, err := lookupPieces(d.service, uint64(tokens), view, piece)
		way := fmt.Sprintf("memory, %d hashes at a time,", piece)
		check(way, answer.Tokens, err)
		checkTails(way, answer.TailBoundaries, err)
	}
	hit, err := d.coord.Lookup(int64(tokens), view, coordinator.ExistsFunc(d.exists))
	check("Lookup", hit.Tokens, err)
	checkTails("Lookup", hit.TailBoundaries, err)
	d.plan(int64(tokens), view, int64(want), class)
	d.explain(int64(tokens), view)
	for _, service := range []*Service{d.service, d.remote} {
		d.cut(service, int64(tokens), view)
	}
}

// start returns the token at which a lookup of at most as many tokens begins, rarely one that is
// refused.
func (d *differential) start(tokens int) int {
	switch start := d.IntN(tokens + 1); d.IntN(12) {
	case 0:
		return start
	case 1, 2, 3, 4, 5:
		return start - start%d.slow.SchedulerBlockSize
	}
	return 0
}

// oracleStore is a backend with the content of a pool.
type oracleStore struct {
	lookuptest.KeyStore
	d *differential
}

func (s *oracleStore) Exists(_ context.Context, keys backend.Keys, _ bool) ([]int, error) {
	return s.d.exists(keys.Strings())
}

// cut compares the answers for the hashes that are needed with those for all.
func (d *differential) cut(service *Service, tokens int64, hashes coordinator.Hashes) {
	numTokens, needed, err := service.Needed(uint64(tokens), service.unaligned(uint64(tokens)), hashes.Start(), hashes.Len())
	_, hitErr := service.Lookup(context.Background(), tokens, hashes)
	if err != nil && classOf(err) != classOf(hitErr) {
		d.fail("%d hashes, %d tokens: Needed %v, lookup %v", hashes.Len(), tokens, err, hitErr)
	}
	if err != nil {
		return
	}
	cut := coordinator.NewHashes(hashes.Bytes()[:needed*diffHashLen], diffHashLen).From(hashes.Start())
	ways := map[string]func(int64, coordinator.Hashes) (any, error){
		"lookup": func(n int64, h coordinator.Hashes) (any, error) {
			return service.Lookup(context.Background(), n, h)
		},
		"explain": func(n int64, h coordinator.Hashes) (any, error) {
			return service.Explain(context.Background(), n, h)
		},
		"plan": func(n int64, h coordinator.Hashes) (any, error) {
			return service.Plan(context.Background(), n, h)
		},
	}
	for name, ask := range ways {
		want, wantErr := ask(tokens, hashes)
		got, gotErr := ask(numTokens, cut)
		if classOf(wantErr) != classOf(gotErr) || !reflect.DeepEqual(want, got) {
			text, _ := json.Marshal([]any{got, want})
			d.fail("%d hashes cut to %d, %d tokens: %s: %s (%v, want %v)", hashes.Len(), needed, tokens, name, text, gotErr, wantErr)
		}
	}
}

// plan compares the masks of a plan with the load masks of the hit.
func (d *differential) plan(tokens int64, hashes coordinator.Hashes, hit int64, class string) {
	want := make([][]bool, len(d.slow.Groups))
	if class == "" && hit > hashes.Start() {
		want, class = d.slow.LoadMask(int(hit), d.first+hashes.Len())
	}
	plan, err := d.service.Plan(context.Background(), tokens, hashes)
	if classOf(err) != class {
		d.fail("%d hashes, %d tokens: plan fails with %v, want %s", hashes.Len(), tokens, err, class)
	}
	if err != nil {
		return
	}
	got := make([][]bool, len(plan.Masks))
	for i, mask := range plan.Masks {
		if first := int(hashes.Start()) / d.slow.Groups[i].BlockSize; int(mask.First) != min(first, len(want[i])) {
			d.fail("%d hashes, %d tokens from %d: the plan's mask %d begins at chunk %d", hashes.Len(), tokens, hashes.Start(), i, mask.First)
		}
		clear(want[i][:mask.First])
		for chunk := range mask.End {
			got[i] = append(got[i], mask.At(chunk))
		}
	}
	if !slices.EqualFunc(got, want, slices.Equal) || plan.Hit.Tokens != hit {
		d.fail("%d hashes, %d tokens: plan has a hit of %d and masks %v, want %d and %v", hashes.Len(), tokens, plan.Hit.Tokens, got, hit, want)
	}
}

// explain compares the explanation of the memory index with that of a store, and the missing
// ranks with what is stored.
func (d *differential) explain(tokens int64, hashes coordinator.Hashes) {
	got, err := d.service.Explain(context.Background(), tokens, hashes)
	hit, ends, ending, err2 := d.coord.LookupExplain(tokens, hashes, coordinator.ExistsFunc(d.exists))
	if classOf(err) != classOf(err2) {
		d.fail("%d hashes, %d tokens: explain %v, of a store %v", hashes.Len(), tokens, err, err2)
	}
	if err != nil || d.slow.CapacityOnly {
		return
	}
	want := api.NewExplanation(hit, ends)
	want.Ending = ending
	if want.StartTokens = hashes.Start(); !reflect.DeepEqual(got, want) {
		text, _ := json.Marshal([]api.Explanation{got, want})
		d.fail("%d hashes, %d tokens: explanations of memory and of a store: %s, %+v and %+v", hashes.Len(), tokens, text, got.Ending, ending)
	}
	for i := range ends {
		end, missing, first := &ends[i], 0, coordinator.Rank{}
		at := d.coord.FirstMissingPosition(end)
		if at < 0 || !d.coord.KeyMask(end.Group).At(int64(at)) {
			continue
		}
		held := d.content[d.slow.StoreGroups()[end.Group]]
		for r := len(held) - 1; r >= 0; r-- {
			if !held[r][coordinator.KeyIndex(at, d.coord.KeyStride(end.Group))] {
				missing, first = missing+1, d.coord.Ranks(end.Group)[r]
			}
		}
		if d.explained[missing == len(held)]++; missing == len(held) {
			missing, first = 0, coordinator.Rank{}
		}
		if end.MissingRanks != missing || end.MissingRank != first {
			d.fail("%d hashes, %d tokens: group %d: rank %+v of %d, want %+v of %d", hashes.Len(), tokens, i, end.MissingRank, end.MissingRanks, first, missing)
		}
	}
}

// exists is the store that the keys of a worker are asked of.
func (d *differential) exists(keys []string) ([]int, error) {
	answers := make([]int, len(keys))
	for i, key := range keys {
		at, hash, err := parseKey(key)
		if err != nil {
			return nil, err
		}
		if d.numbers[string(hash)] < d.first {
			return nil, fmt.Errorf("hash %d is before the start", d.numbers[string(hash)])
		}
		rank := oracle.Rank{TP: int(at.TPRank), PP: int(at.PPRank), PCP: int(at.PCPRank)}
		if d.content.Has(&d.slow, d.numbers)(d.slow.StoreGroups()[at.Group], rank, string(bytes.Clone(hash))) {
			answers[i] = 1
		}
	}
	return answers, nil
}
