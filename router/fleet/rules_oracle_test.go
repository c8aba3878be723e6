package fleet

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/partstest"
	"github.com/hitline/hitline/router/events"
)

// plainBlock is a block in a group and tier. plainHolder is what a holder has: plain maps.
type plainBlock struct {
	group int
	tier  events.Tier
	key   uint64
}

type plainHolder struct {
	h         *Holder
	blocks    map[plainBlock]bool
	predicted map[uint64]int // epoch by key
	stale     bool
}

// plainFleet is a fleet of described groups of all kinds, and what it must answer by FindHit over plain bits.
type plainFleet struct {
	t       *testing.T
	rng     *rand.Rand
	cfg     Config
	now     time.Time
	f       *Fleet
	rules   *coordinator.Coordinator
	store   []int // store group by group, -1 none
	holders map[ID]*plainHolder
	keys    []uint64
	r       Result
}

var ruleGroups = [][]coordinator.Group{
	{{Kind: coordinator.FullAttention, BlockSize: 32}, {Kind: coordinator.Mamba, BlockSize: 64, MambaCacheMode: "align"}},
	{{Kind: coordinator.Mamba, BlockSize: 32, MambaCacheMode: "all"}, {Kind: coordinator.FullAttention, BlockSize: 32}},
	{{Kind: coordinator.FullAttention, BlockSize: 16, IsEagleGroup: true}},
	{{Kind: coordinator.FullAttention, BlockSize: 16}, {Kind: coordinator.SlidingWindow, BlockSize: 16, SlidingWindow: 70}, {Kind: coordinator.FullAttention, BlockSize: 16, Variant: 1, IsEagleGroup: true}},
	{{Kind: coordinator.FullAttention, BlockSize: 16}, {Kind: coordinator.ChunkedLocalAttention, BlockSize: 16, AttentionChunkSize: 64}},
	{{Kind: coordinator.MLAAttention, BlockSize: 64}, {Kind: coordinator.SlidingWindowMLA, BlockSize: 16, SlidingWindow: 40, ExtraRetainedTokens: 32}},
	{{Kind: coordinator.SinkFullAttention, BlockSize: 16}, {Kind: coordinator.SlidingWindow, BlockSize: 32, SlidingWindow: 33}, {Kind: coordinator.Mamba, BlockSize: 16, MambaCacheMode: "align"}},
	{{Kind: coordinator.SlidingWindow, BlockSize: 16, SlidingWindow: 40, IsEagleGroup: true}},
	{{Kind: coordinator.FullAttention, BlockSize: 48}, {Kind: coordinator.FullAttention, BlockSize: 32, Variant: 2}},
	{{Kind: coordinator.RSWA, BlockSize: 16, RSWAWindow: 64}, {Kind: coordinator.ChunkedLocalAttention, BlockSize: 32, AttentionChunkSize: 96}},
}

var ruleReleases = []string{"", "0.28.0", "0.33.0", "0.30.0", "0.32.0"}

func newPlainFleet(t *testing.T, seed uint64) *plainFleet {
	rng := newRand(seed)
	p := &plainFleet{t: t, rng: rng, now: time.Unix(1000, 0), holders: map[ID]*plainHolder{}}
	p.cfg = Config{BlockSize: 16, Groups: ruleGroups[rng.IntN(len(ruleGroups))], Release: ruleReleases[rng.IntN(len(ruleReleases))],
		FirstBytes: rng.IntN(2) == 0, PredictTTL: 40 * time.Second, now: func() time.Time { return p.now }}
	if rng.IntN(2) == 0 {
		p.cfg.MaxBlocks = 20 + rng.IntN(80)
	}
	var err error
	p.f, err = New(p.cfg)
	require.NoError(t, err)
	release := cmp.Or(p.cfg.Release, coordinator.NewestRelease())
	p.rules, err = coordinator.New(coordinator.Pool{HashBlockSize: 16, VLLM: release, AllowUnknownVLLM: true, Groups: p.cfg.Groups})
	require.NoError(t, err)
	p.store = slices.Repeat([]int{-1}, len(p.cfg.Groups))
	for g := range p.rules.NumGroups() {
		p.store[p.rules.PoolIndex(g)] = g
	}
	p.keys = []uint64{0, math.MaxUint64}
	for i := range 70 {
		k := rng.Uint64()
		switch rng.IntN(3) {
		case 0:
			k = uint64(i+1) << 32 // equal low bits
		case 1:
			k = uint64(i + 1)
		}
		if !slices.Contains(p.keys, k) {
			p.keys = append(p.keys, k)
		}
	}
	rng.Shuffle(len(p.keys), func(i, j int) { p.keys[i], p.keys[j] = p.keys[j], p.keys[i] })
	for i := range 3 + rng.IntN(80) {
		p.add(ID{fmt.Sprint("engine-", i/2), i % 2})
	}
	return p
}

func (p *plainFleet) add(id ID) {
	h, err := p.f.Add(id)
	require.NoError(p.t, err)
	p.holders[id] = &plainHolder{h: h, blocks: map[plainBlock]bool{}, predicted: map[uint64]int{}, stale: true}
	if p.rng.IntN(8) > 0 {
		h.SetStale(false)
		p.holders[id].stale = false
	}
}

// chain returns keys: a part of the only chain, at times with another end.
func (p *plainFleet) chain(leading bool) []uint64 {
	from := 0
	if !leading {
		from = p.rng.IntN(len(p.keys))
	}
	keys := slices.Clone(p.keys[from : from+1+p.rng.IntN(len(p.keys)-from)])
	if p.rng.IntN(6) == 0 {
		rest := keys[p.rng.IntN(len(keys)):]
		p.rng.Shuffle(len(rest), func(i, j int) { rest[i], rest[j] = rest[j], rest[i] })
	}
	return keys
}

func (p *plainFleet) hashes(keys []uint64) coordinator.Hashes {
	n := 8 * (1 + p.rng.IntN(3))
	blob := make([]byte, 0, n*len(keys))
	for _, k := range keys {
		pad := make([]byte, n-8)
		for i := range pad {
			pad[i] = byte(p.rng.Uint32())
		}
		if p.cfg.FirstBytes {
			blob = append(binary.BigEndian.AppendUint64(blob, k), pad...)
		} else {
			blob = binary.BigEndian.AppendUint64(append(blob, pad...), k)
		}
	}
	return coordinator.NewHashes(blob, n)
}

func (p *plainFleet) epoch() int { return int(p.now.Sub(time.Unix(1000, 0)) / (10 * time.Second)) }

func (p *plainFleet) counts(epoch int) bool { return epoch > p.epoch()-4 }

func (p *plainFleet) len(m *plainHolder) int {
	n := len(m.blocks)
	for _, e := range m.predicted {
		if p.counts(e) {
			n++
		}
	}
	return n
}

func (p *plainFleet) isFull(entries int) bool { return p.cfg.MaxBlocks > 0 && entries >= p.cfg.MaxBlocks }

func (p *plainFleet) some() *plainHolder {
	ids := make([]ID, 0, len(p.holders))
	for id := range p.holders {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, compareIDs)
	n := len(ids)
	if p.rng.IntN(2) == 0 {
		n = min(n, 4)
	}
	return p.holders[ids[p.rng.IntN(n)]]
}

var plainTiers = []events.Tier{{Medium: "GPU"}, {Medium: "GPU"}, {Medium: "CPU"}, {}, {Medium: "GPU", Ownership: "o"}, {Medium: "DISK", Locality: "LOCAL"}, {Medium: "GPU", Locality: "REMOTE"}}

func (p *plainFleet) step() {
	m := p.some()
	switch n := p.rng.IntN(100); {
	case n < 45:
		p.storeBlocks(m)
	case n < 65:
		p.removeBlocks(m)
	case n < 80:
		p.predictBlocks(m)
	case n < 84:
		m.h.Clear()
		clear(m.blocks)
		clear(m.predicted)
	case n < 88:
		m.stale = !m.stale
		m.h.SetStale(m.stale)
	case n < 92:
		id := m.h.id
		m.h.Close()
		delete(p.holders, id)
		p.add(id)
	default:
		p.now = p.now.Add(time.Duration(p.rng.IntN(9000)) * time.Millisecond)
	}
}

func (p *plainFleet) storeBlocks(m *plainHolder) {
	b := events.Blocks{Group: p.rng.IntN(len(p.cfg.Groups)+1) - 1, Tier: plainTiers[p.rng.IntN(len(plainTiers))]}
	keys := p.chain(p.rng.IntN(3) > 0)
	b.Hashes = p.hashes(keys)
	held := make([]bool, len(keys))
	err := m.h.Store(&b, held)
	if b.Tier.Locality == "REMOTE" {
		require.NoError(p.t, err)
		return
	}
	for i, k := range keys {
		if p.isFull(len(m.blocks)) {
			require.ErrorIs(p.t, err, events.ErrFull)
			return
		}
		at := plainBlock{b.Group, b.Tier, k}
		require.Equal(p.t, m.blocks[at], held[i])
		m.blocks[at] = true
	}
	require.NoError(p.t, err)
}

func (p *plainFleet) removeBlocks(m *plainHolder) {
	b := events.Blocks{Group: p.rng.IntN(len(p.cfg.Groups)+1) - 1, Tier: plainTiers[p.rng.IntN(len(plainTiers))]}
	keys := p.chain(false)
	keys = keys[:1+p.rng.IntN(min(10, len(keys)))]
	b.Hashes = p.hashes(keys)
	require.NoError(p.t, m.h.Remove(&b))
	same := func(a, b string) bool { return a == "" || b == "" || a == b }
	for at := range m.blocks {
		if slices.Contains(keys, at.key) && (b.Group < 0 || b.Group == at.group || at.group < 0) &&
			same(at.tier.Medium, b.Tier.Medium) && same(at.tier.Locality, b.Tier.Locality) && same(at.tier.Ownership, b.Tier.Ownership) {
			delete(m.blocks, at)
		}
	}
	for _, k := range keys {
		delete(m.predicted, k)
	}
}

func (p *plainFleet) predictBlocks(m *plainHolder) {
	keys := p.chain(true)
	err := m.h.Predict(p.hashes(keys))
	for _, k := range keys {
		if p.isFull(p.len(m)) {
			require.ErrorIs(p.t, err, ErrFull)
			return
		}
		m.predicted[k] = p.epoch()
	}
	require.NoError(p.t, err)
}

// hit returns the prefix of a holder in a medium, "*" for all.
func (p *plainFleet) hit(m *plainHolder, keys []uint64, medium string) int64 {
	held := map[plainBlock]bool{}
	for at := range m.blocks {
		if !m.stale && (medium == "*" || medium == at.tier.Medium) {
			held[plainBlock{group: max(0, at.group), key: at.key}] = true
		}
	}
	pres := coordinator.Presence{NumHashes: len(keys), Bits: make([][]uint64, p.rules.NumGroups())}
	for g, store := range p.store {
		if store < 0 {
			continue
		}
		stride := p.rules.KeyStride(store)
		pres.Bits[store] = make([]uint64, len(keys)/stride/64+1)
		for i := range len(keys) / stride {
			k := keys[i*stride+stride-1]
			e, isPredicted := m.predicted[k]
			isPredicted = isPredicted && p.counts(e) && (medium == "*" || medium == Predicted)
			if isPredicted || held[plainBlock{group: g, key: k}] {
				pres.Bits[store][i/64] |= 1 << (i % 64)
			}
		}
	}
	length := int64(len(keys) * 16)
	tokens, err := p.rules.FindHit(&pres, length-length%p.rules.Alignment(), true, &coordinator.Scratch{})
	require.NoError(p.t, err)
	return max(0, tokens) / 16 * 16
}

func (p *plainFleet) ask() {
	keys := p.chain(p.rng.IntN(4) > 0)
	var want []Prefix
	for id, m := range p.holders {
		x := Prefix{ID: id, Tokens: p.hit(m, keys, "*")}
		for _, medium := range []string{"", "CPU", "DISK", "GPU", Predicted} {
			if n := p.hit(m, keys, medium); n > 0 {
				x.Tokens = max(x.Tokens, n)
				x.Media = append(x.Media, MediumPrefix{medium, n})
			}
		}
		if x.Tokens > 0 {
			want = append(want, x)
		}
	}
	slices.SortFunc(want, func(a, b Prefix) int {
		return cmp.Or(cmp.Compare(b.Tokens, a.Tokens), strings.Compare(a.Engine, b.Engine), cmp.Compare(a.Rank, b.Rank))
	})
	require.NoError(p.t, p.f.Lookup(&p.r, p.hashes(keys)))
	got := slices.Clone(p.r.Holders)
	for i := range got {
		if len(got[i].Media) == 0 {
			got[i].Media = nil
		}
	}
	if len(want) == 0 {
		require.Empty(p.t, got, "groups %+v of %q, %d hashes", p.cfg.Groups, p.cfg.Release, len(keys))
		return
	}
	require.Equal(p.t, want, got, "groups %+v of %q, %d hashes", p.cfg.Groups, p.cfg.Release, len(keys))
}

func (p *plainFleet) reload() {
	f, err := New(p.cfg)
	require.NoError(p.t, err)
	require.NoError(p.t, f.Load(partstest.Reader(snapshotOf(p.f))))
	p.f = f
	f.start = time.Unix(1000, 0)
	for id, m := range p.holders {
		m.h = f.Get(id)
		clear(m.predicted)
		m.h.SetStale(m.stale)
	}
}

// Prefixes by the rules of groups of all kinds, with the bound of a holder reached, are those that FindHit finds in
// plain bits.
func TestAgainstRules(t *testing.T) {
	rounds, first := 16, uint64(1)
	if text := os.Getenv("HITLINE_TEST_FLEET_ROUNDS"); text != "" {
		var err error
		rounds, err = strconv.Atoi(text)
		require.NoError(t, err)
		first = uint64(time.Now().UnixNano())
	}
	for seed := first; seed < first+uint64(rounds); seed++ {
		if !t.Run(fmt.Sprint(seed), func(t *testing.T) {
			p := newPlainFleet(t, seed)
			for range 120 {
				for range 4 {
					p.step()
				}
				p.ask()
				if p.rng.IntN(60) == 0 {
					p.reload()
				}
			}
			total := 0
			for _, m := range p.holders {
				require.Equal(t, p.len(m), m.h.len())
				total += p.len(m)
			}
			require.EqualValues(t, total, p.f.Stats().Entries)
			checkCore(t, p.f)
		}) {
			return
		}
	}
}
