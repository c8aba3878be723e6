package fleet

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/router/events"
)

const oracleBlock = 16

// oracleMedia are in order. A medium "" comes from engines that name none. ownMedium stands for one that a holder alone
// has, until it is cleared.
var oracleMedia = []string{"", "CPU", "GPU", ownMedium, Predicted}

const ownMedium = "OWN"

var oracleTiers = []events.Tier{
	{Medium: "GPU"}, {Medium: "CPU"}, {}, {Medium: "CPU", Ownership: "x"}, {Medium: "GPU", Locality: "LOCAL"}, {Medium: "GPU", Locality: "REMOTE"},
	{Medium: ownMedium}, {Medium: ownMedium, Ownership: "x"},
}

// oracleKind is a model's groups.
type oracleKind struct {
	name        string
	isDescribed bool
	hasRules    bool // described, and of kinds of which the coordinator decides: the model asks it, too
	maxBlocks   int
	firstBytes  bool
	hashLen     int
	groups      []coordinator.Group
}

func full(size int) coordinator.Group { return coordinator.Group{BlockSize: size} }
func window(size, window int) coordinator.Group {
	return coordinator.Group{Kind: coordinator.SlidingWindow, BlockSize: size, SlidingWindow: window}
}

var oracleKinds = []oracleKind{
	{name: "full", hashLen: 32, groups: []coordinator.Group{full(16)}},
	{name: "full of first bytes", hashLen: 8, firstBytes: true, groups: []coordinator.Group{full(16)}},
	{name: "full, described", hashLen: 8, isDescribed: true, groups: []coordinator.Group{full(16)}},
	{name: "larger blocks", hashLen: 32, groups: []coordinator.Group{full(48)}},
	{name: "full and window", hashLen: 32, groups: []coordinator.Group{full(16), window(16, 50)}},
	{name: "mla and windows", hashLen: 8, firstBytes: true, groups: []coordinator.Group{
		window(16, 33), {Kind: coordinator.MLAAttention, BlockSize: 32}, {Kind: coordinator.SlidingWindowMLA, BlockSize: 16, SlidingWindow: 100}}},
	{name: "two full, described", hashLen: 8, isDescribed: true, groups: []coordinator.Group{full(32), full(16), window(64, 65)}},
	{name: "window", hashLen: 8, groups: []coordinator.Group{window(16, 40)}},
	{name: "windows, described", hashLen: 32, isDescribed: true, groups: []coordinator.Group{window(16, 17), window(32, 200)}},
}

// Groups of all kinds. Some holders have as many entries as they may.
func init() {
	for i, groups := range [][]coordinator.Group{
		{full(32), {Kind: coordinator.Mamba, BlockSize: 64, MambaCacheMode: "align"}},
		{{Kind: coordinator.Mamba, BlockSize: 32, MambaCacheMode: "all"}, full(32)},
		{{BlockSize: 16, IsEagleGroup: true}},
		{full(16), window(16, 70), {BlockSize: 16, Variant: 1, IsEagleGroup: true}},
		{full(16), {Kind: coordinator.ChunkedLocalAttention, BlockSize: 16, AttentionChunkSize: 64}},
		{{Kind: coordinator.MLAAttention, BlockSize: 64}, {Kind: coordinator.SlidingWindowMLA, BlockSize: 16, SlidingWindow: 40, ExtraRetainedTokens: 32}},
		{{Kind: coordinator.SinkFullAttention, BlockSize: 16}, window(32, 33), {Kind: coordinator.Mamba, BlockSize: 16, MambaCacheMode: "align"}},
		{{Kind: coordinator.SlidingWindow, BlockSize: 16, SlidingWindow: 40, IsEagleGroup: true}},
		{full(48), {BlockSize: 32, Variant: 2}},
		{{Kind: coordinator.RSWA, BlockSize: 16, RSWAWindow: 64}, {Kind: coordinator.ChunkedLocalAttention, BlockSize: 32, AttentionChunkSize: 96}},
	} {
		oracleKinds = append(oracleKinds, oracleKind{name: fmt.Sprint("rules ", i), isDescribed: true, hasRules: true,
			hashLen: 8 + 12*(i%3), firstBytes: i%2 == 0, maxBlocks: i % 3 * 50, groups: groups})
	}
}

// oracleScale returns how many queries of each kind are asked, and the seed of the first. HITLINE_TEST_FLEET_QUERIES sets
// the number of all together; then the seed is another each time.
func oracleScale(t *testing.T) (queries int, seed uint64) {
	if text := os.Getenv("HITLINE_TEST_FLEET_QUERIES"); text != "" {
		n, err := strconv.Atoi(text)
		require.NoError(t, err)
		seed = uint64(time.Now().UnixNano())
		t.Logf("seed %d", seed)
		return n/len(oracleKinds) + 1, seed
	}
	if testing.Short() || lookuptest.Race {
		return 80, 0
	}
	return 800, 0
}

// After any history of many holders queries answer what the model does.
func TestAgainstOracle(t *testing.T) {
	queries, seed := oracleScale(t)
	for i, kind := range oracleKinds {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			o := newOracle(t, kind, seed+uint64(i))
			for o.queries < queries {
				o.step()
			}
			o.check()
			t.Logf("%d queries, %d found something, %d holders in answers; %+v", o.queries, o.hits, o.found, o.fleet.Stats())
			require.Greater(t, o.hits, o.queries/2)
		})
	}
}

// oracle runs one history.
type oracle struct {
	t       *testing.T
	rng     *rand.Rand
	model   model
	fleet   *Fleet
	holders map[ID]*Holder
	ids     []ID
	prompts [][]byte
	numbers map[string]int // of hashes
	query   Query
	result  Result

	isSilent                    bool // step asks nothing
	media                       int  // of single holders, ever
	steps, queries, hits, found int
}

func newOracle(t *testing.T, kind oracleKind, seed uint64) *oracle {
	o := &oracle{t: t, rng: rand.New(rand.NewPCG(seed, 26)), holders: map[ID]*Holder{}, numbers: map[string]int{}}
	start := time.Unix(1_000_000, 0)
	o.model = model{kind: kind, start: start, now: start, ttl: time.Minute, holders: map[ID]*modelHolder{}, byHash: map[int][]*modelEntry{}}
	cfg := Config{BlockSize: oracleBlock, FirstBytes: kind.firstBytes, MaxBlocks: kind.maxBlocks, PredictTTL: time.Minute, now: func() time.Time { return o.model.now }}
	if kind.isDescribed {
		cfg.Groups = kind.groups
	}
	var err error
	if kind.hasRules {
		cfg.Release = []string{"", "0.28.0", "0.30.0", "0.32.0", "0.33.0"}[o.rng.IntN(5)]
		release := cmp.Or(cfg.Release, coordinator.NewestRelease())
		o.model.rules, err = coordinator.New(coordinator.Pool{HashBlockSize: oracleBlock, VLLM: release, Groups: kind.groups})
		require.NoError(t, err)
	}
	o.fleet, err = New(cfg)
	require.NoError(t, err)
	holders := 200
	if kind.hasRules {
		holders = 60 // FindHit takes long
	}
	for i := range holders {
		o.ids = append(o.ids, ID{Engine: fmt.Sprintf("e%d", i/2), Rank: i % 2})
		o.add(o.ids[i])
	}
	for range 12 {
		o.prompts = append(o.prompts, o.prompt())
	}
	return o
}

func (o *oracle) add(id ID) {
	h, err := o.fleet.Add(id)
	require.NoError(o.t, err)
	o.holders[id] = h
	m := &modelHolder{id: id, stale: true}
	o.clear(m)
	o.model.holders[id] = m
	if o.rng.IntN(10) > 0 {
		h.SetStale(false)
		m.stale = false
	}
}

// clear empties a holder, whose engine may have other groups from then on: one of six differs from the model's.
func (o *oracle) clear(m *modelHolder) {
	o.model.clear(m)
	o.media++
	m.medium = fmt.Sprint(ownMedium, o.media)
	m.groups = slices.Clone(o.model.kind.groups)
	if o.model.kind.isDescribed || o.rng.IntN(6) > 0 {
		return
	}
	g := o.rng.IntN(len(m.groups) + 1)
	if g == len(m.groups) {
		m.groups = append(m.groups, full(16))
	}
	m.groups[g] = []coordinator.Group{full(16), full(32), full(64), window(16, 20), window(16, 90), window(48, 100)}[o.rng.IntN(6)]
}

// prompt returns a prompt, which mostly begins as one that there is.
func (o *oracle) prompt() []byte {
	n := o.model.kind.hashLen
	blob := make([]byte, 40*n)
	for i := range blob {
		blob[i] = byte(o.rng.Uint32())
	}
	if len(o.prompts) > 0 {
		copy(blob, o.prompts[o.rng.IntN(len(o.prompts))][:o.rng.IntN(40)*n])
	}
	return blob
}

// number returns the number of a hash in the model.
func (o *oracle) number(hash []byte) int {
	n, ok := o.numbers[string(hash)]
	if !ok {
		n = len(o.numbers)
		o.numbers[string(hash)] = n
	}
	return n
}

func (o *oracle) step() {
	o.steps++
	id := o.ids[o.rng.IntN(len(o.ids))]
	h, m := o.holders[id], o.model.holders[id]
	switch r := o.rng.IntN(1000); {
	case h == nil:
		o.add(id)
	case r < 5:
		h.Close()
		require.ErrorIs(o.t, h.Store(&events.Blocks{Hashes: coordinator.NewHashes(make([]byte, 8), 8)}, make([]bool, 1)), ErrClosed)
		o.model.clear(m)
		delete(o.holders, id)
		delete(o.model.holders, id)
	case r < 15:
		h.Clear()
		o.clear(m)
	case r < 60:
		m.stale = !m.stale
		h.SetStale(m.stale)
	case r < 100:
		o.model.now = o.model.now.Add(time.Duration(o.rng.Int64N(int64(10 * time.Second))))
	case r < 110:
		o.prompts[o.rng.IntN(len(o.prompts))] = o.prompt()
	case r < 115:
		o.fleet.collect(noPause)
	case r < 120:
		o.check()
	case r < 125:
		o.clearTier(h, m)
	case r < 220:
		o.predict(h, m)
	case r < 400:
		o.remove(h, m)
	default:
		o.store(h, m)
	}
	if o.steps > 5*len(o.ids) && !o.isSilent { // holders have something
		o.ask()
		o.ask()
	}
}

// event returns blocks of a group of an engine, some of which are left out, and their hashes.
func (o *oracle) event(m *modelHolder) (*events.Blocks, []int) {
	kind := &o.model.kind
	group := o.rng.IntN(len(m.groups)+1) - 1
	if group < 0 && o.rng.IntN(4) > 0 {
		group = 0
	}
	spec := m.groups[max(0, group)]
	stride := spec.BlockSize / oracleBlock
	if kind.hasRules {
		stride, spec = 1, coordinator.Group{} // prefixes may end inside of blocks
	}
	prompt, n := o.prompts[o.rng.IntN(len(o.prompts))], kind.hashLen
	blocks := 40 / stride
	first := 0
	if o.rng.IntN(3) == 0 {
		first = o.rng.IntN(blocks)
	}
	end := first + 1 + o.rng.IntN(blocks-first)
	var blob []byte
	var hashes []int
	for i := first; i < end; i++ {
		if i > first && o.rng.IntN(50) == 0 {
			continue
		}
		at := (i + 1) * stride * n
		blob = append(blob, prompt[at-n:at]...)
		hashes = append(hashes, o.number(prompt[at-n:at]))
	}
	b := &events.Blocks{Group: group, Hashes: coordinator.NewHashes(blob, n), BlockSize: int64(spec.BlockSize),
		SlidingWindow: int64(spec.SlidingWindow), Tier: oracleTiers[0]}
	if !kind.hasRules {
		b.SpecKind = spec.Kind.String()
	}
	switch o.rng.IntN(4) {
	case 0:
		b.Parent = prompt[max(0, first*stride-1)*n:][:n]
	case 1:
		b.Parent = prompt[o.rng.IntN(40)*n:][:n] // a wrong one
	}
	if o.rng.IntN(4) == 0 {
		b.Tier = oracleTiers[o.rng.IntN(len(oracleTiers))]
	}
	if b.Tier.Medium == ownMedium {
		b.Tier.Medium = m.medium
	}
	return b, hashes
}

func (o *oracle) store(h *Holder, m *modelHolder) {
	b, hashes := o.event(m)
	held, want := make([]bool, len(hashes)), make([]bool, len(hashes))
	err := h.Store(b, held)
	if b.Tier.Locality == "REMOTE" {
		require.Equal(o.t, want, held)
		require.NoError(o.t, err)
		return
	}
	at := events.GroupTier{Group: b.Group, Tier: b.Tier}
	m.seen[max(0, b.Group)] = m.seen[max(0, b.Group)] || b.Tier.Medium == "GPU" || b.Tier.Medium == ""
	var wantErr error
	for i, hash := range hashes {
		e := o.model.entry(m, hash)
		if want[i] = slices.Contains(e.tiers, at); want[i] {
			continue
		}
		if stored, _ := o.model.count(m); o.model.isFull(stored) {
			wantErr = ErrFull
			break
		}
		e.tiers = append(e.tiers, at)
	}
	require.ErrorIs(o.t, err, wantErr)
	require.Equal(o.t, want, held)
	require.Equal(o.t, o.model.entries(m), h.len())
}

func (o *oracle) remove(h *Holder, m *modelHolder) {
	b, hashes := o.event(m)
	b.BlockSize, b.SpecKind, b.SlidingWindow = 0, "", 0
	switch o.rng.IntN(6) {
	case 0:
		b.Group = events.NoGroup
	case 1:
		b.Tier = events.Tier{}
	}
	if o.rng.IntN(2) == 0 { // most removals are of a few blocks
		n := 1 + o.rng.IntN(min(3, len(hashes)))
		from := o.rng.IntN(len(hashes) - n + 1)
		hashes, b.Hashes = hashes[from:from+n], slice(b.Hashes, from, from+n)
	}
	require.NoError(o.t, h.Remove(b))
	for _, hash := range hashes {
		o.model.remove(m, b.Group, b.Tier, hash)
	}
	require.Equal(o.t, o.model.entries(m), h.len())
}

func (o *oracle) clearTier(h *Holder, m *modelHolder) {
	b, _ := o.event(m)
	at := events.Blocks{Group: events.NoGroup, Tier: events.Tier{Medium: b.Tier.Medium}}
	require.NoError(o.t, h.ClearTier(&at, func() error { return nil }))
	for hash, e := range m.entries {
		if slices.ContainsFunc(e.tiers, func(held events.GroupTier) bool { return held.Matches(at.Group, &at.Tier) }) {
			o.model.remove(m, at.Group, at.Tier, hash)
		}
	}
	require.Equal(o.t, o.model.entries(m), h.len())
}

func (o *oracle) predict(h *Holder, m *modelHolder) {
	n := o.model.kind.hashLen
	prompt := o.prompts[o.rng.IntN(len(o.prompts))][:(1+o.rng.IntN(40))*n]
	err := h.Predict(o.t.Context(), coordinator.NewHashes(prompt, n))
	var wantErr error
	for hash := range slices.Chunk(prompt, n) {
		e := o.model.entry(m, o.number(hash))
		if !o.model.counts(e) && o.model.isFull(o.model.entries(m)) {
			wantErr = ErrFull
			break
		}
		e.isPredicted, e.predicted = true, o.model.now
	}
	require.ErrorIs(o.t, err, wantErr)
	require.Equal(o.t, o.model.entries(m), h.len())
}

// ask compares a query, whose hashes come in pieces, with the model.
func (o *oracle) ask() {
	n := o.model.kind.hashLen
	prompt := o.prompts[o.rng.IntN(len(o.prompts))][:(1+o.rng.IntN(40))*n]
	var hashes []int
	for hash := range slices.Chunk(prompt, n) {
		hashes = append(hashes, o.number(hash))
	}
	o.query.LastKnown = o.rng.IntN(2) == 0
	o.model.lastKnown = o.query.LastKnown
	want := o.model.answer(hashes)
	if !o.query.LastKnown && o.rng.IntN(2) == 0 {
		require.NoError(o.t, o.fleet.Lookup(&o.result, coordinator.NewHashes(prompt, n)))
	} else {
		require.NoError(o.t, o.query.Begin(o.fleet, n))
		for len(prompt) > 0 {
			end := (1 + o.rng.IntN(len(prompt)/n)) * n
			wanted := o.query.Add(prompt[:end])
			if prompt = prompt[end:]; !wanted {
				break
			}
		}
		o.query.End(&o.result)
	}
	if !slices.EqualFunc(want, o.result.Holders, func(a, b Prefix) bool {
		return a.ID == b.ID && a.Tokens == b.Tokens && slices.Equal(a.Media, b.Media)
	}) {
		require.Equal(o.t, want, o.result.Holders, "step %d", o.steps)
	}
	o.queries++
	o.found += len(want)
	if len(want) > 0 {
		o.hits++
	}
}

// check compares the figures, and checks the invariants.
func (o *oracle) check() {
	checkCore(o.t, o.fleet)
	entries, blocks := 0, map[int]bool{}
	for _, m := range o.model.holders {
		entries += o.model.entries(m)
		for hash, e := range m.entries {
			if len(e.tiers) > 0 || o.model.counts(e) {
				blocks[hash] = true
			}
		}
	}
	s := o.fleet.Stats()
	require.EqualValues(o.t, entries, s.Entries)
	require.Equal(o.t, len(o.model.holders), s.Holders)
	require.GreaterOrEqual(o.t, s.Blocks, int64(len(blocks))) // beside those that await a sweep
	o.fleet.collect(noPause)
	require.EqualValues(o.t, len(blocks), o.fleet.Stats().Blocks)
	var want []HolderStatus
	for id, m := range o.model.holders {
		want = append(want, HolderStatus{id, m.stale, o.model.entries(m)})
	}
	slices.SortFunc(want, func(a, b HolderStatus) int { return compareIDs(a.ID, b.ID) })
	require.Equal(o.t, want, o.fleet.Holders())
}
