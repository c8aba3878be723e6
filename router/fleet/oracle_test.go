package fleet

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/router/events"
)

// modelEntry is what a holder has of one hash.
type modelEntry struct {
	holder      *modelHolder
	tiers       []events.GroupTier
	isPredicted bool
	predicted   time.Time // when
}

// modelHolder is one holder.
type modelHolder struct {
	id      ID
	stale   bool
	entries map[int]*modelEntry // by number of a hash

	// present has a bit for each hash of a query that the holder has in a group and a medium; the last medium is all
	// together.
	present [maxModelGroups][]uint64
}

// maxModelGroups is how many groups a model has at most.
const maxModelGroups = 3

// model is a slow fleet.
type model struct {
	kind    oracleKind
	start   time.Time
	now     time.Time
	ttl     time.Duration
	holders map[ID]*modelHolder
	byHash  map[int][]*modelEntry
	seen    map[int]bool // groups
}

// entry returns what a holder has of a hash.
func (m *model) entry(h *modelHolder, hash int) *modelEntry {
	e := h.entries[hash]
	if e == nil {
		e = &modelEntry{holder: h}
		h.entries[hash] = e
		m.byHash[hash] = append(m.byHash[hash], e)
	}
	return e
}

func (m *model) clear(h *modelHolder) {
	for hash := range h.entries {
		m.byHash[hash] = slices.DeleteFunc(m.byHash[hash], func(e *modelEntry) bool { return e.holder == h })
	}
	h.entries = map[int]*modelEntry{}
}

func (m *model) remove(h *modelHolder, group int, tier events.Tier, hash int) {
	match := func(a, b string) bool { return a == "" || b == "" || a == b }
	e := m.entry(h, hash)
	e.isPredicted = false
	e.tiers = slices.DeleteFunc(e.tiers, func(at events.GroupTier) bool {
		groups := group == events.NoGroup || group == at.Group || at.Group == events.NoGroup
		return groups && match(at.Tier.Medium, tier.Medium) && match(at.Tier.Locality, tier.Locality) && match(at.Tier.Ownership, tier.Ownership)
	})
}

// counts reports whether a prediction counts now: in its quarter of the time to live and in the three that follow.
func (m *model) counts(e *modelEntry) bool {
	if !e.isPredicted {
		return false
	}
	quarter := m.ttl / 4
	begin := m.start.Add(e.predicted.Sub(m.start).Truncate(quarter))
	return m.now.Before(begin.Add(4 * quarter))
}

// fill sets the bits of a hash of a query, of which an entry tells, in its holder.
func (m *model) fill(e *modelEntry, at int) {
	h, all := e.holder, len(oracleMedia)
	if m.counts(e) {
		for g := range h.present {
			h.present[g][slices.Index(oracleMedia, Predicted)] |= 1 << at
			h.present[g][all] |= 1 << at
		}
	}
	if h.stale {
		return
	}
	for _, g := range e.tiers {
		h.present[max(0, g.Group)][slices.Index(oracleMedia, g.Tier.Medium)] |= 1 << at
		h.present[max(0, g.Group)][all] |= 1 << at
	}
}

// step returns the groups that count, and the hashes in a common multiple of their blocks.
func (m *model) step() (groups []int, hashes int) {
	hashes = 1
	for g, spec := range m.kind.groups {
		if m.seen[g] || m.kind.isDescribed {
			groups = append(groups, g)
			hashes = lcm(hashes, spec.BlockSize/oracleBlock)
		}
	}
	if len(groups) == 0 {
		groups = []int{0} // predictions count all the same
	}
	return groups, hashes
}

// prefix returns the longest length in tokens of a query of n hashes, a multiple of all block sizes, at which each group
// that counts has what it needs.
func (m *model) prefix(h *modelHolder, n, medium int) int64 {
	groups, step := m.step()
	for n = n / step * step; n > 0; n -= step {
		fits := true
		for _, g := range groups {
			fits = fits && needsMet(h.present[g][medium], m.kind.groups[g], n)
		}
		if fits {
			return int64(n * oracleBlock)
		}
	}
	return 0
}

// needsMet reports whether a group has what a prefix of n hashes needs: full attention all blocks in front of it, a
// window those that the next token looks at.
func needsMet(present uint64, g coordinator.Group, n int) bool {
	stride := g.BlockSize / oracleBlock
	blocks, first := n/stride, 0
	if !g.Kind.IsFull() {
		first = max(0, blocks-(g.SlidingWindow-1+g.BlockSize-1)/g.BlockSize)
	}
	for i := first; i < blocks; i++ {
		if present>>((i+1)*stride-1)&1 == 0 {
			return false
		}
	}
	return true
}

func lcm(a, b int) int {
	n := a
	for n%b != 0 {
		n += a
	}
	return n
}

// answer returns what a query must find.
func (m *model) answer(hashes []int) []Prefix {
	for _, h := range m.holders {
		for g := range h.present {
			h.present[g] = append(h.present[g][:0], make([]uint64, len(oracleMedia)+1)...)
		}
	}
	for at, hash := range hashes {
		for _, e := range m.byHash[hash] {
			m.fill(e, at)
		}
	}
	var list []Prefix
	for _, h := range m.holders {
		p := Prefix{ID: h.id, Tokens: m.prefix(h, len(hashes), len(oracleMedia))}
		if p.Tokens == 0 {
			continue
		}
		for i, medium := range oracleMedia {
			if n := m.prefix(h, len(hashes), i); n > 0 {
				p.Media = append(p.Media, MediumPrefix{medium, n})
			}
		}
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b Prefix) int {
		return cmp.Or(cmp.Compare(b.Tokens, a.Tokens), strings.Compare(a.Engine, b.Engine), cmp.Compare(a.Rank, b.Rank))
	})
	return list
}

// entries returns the number of entries of a holder.
func (m *model) entries(h *modelHolder) int {
	n := 0
	for _, e := range h.entries {
		if n += len(e.tiers); m.counts(e) {
			n++
		}
	}
	return n
}

const oracleBlock = 16

// oracleMedia are in order. A medium "" comes from engines that name none.
var oracleMedia = []string{"", "CPU", "GPU", Predicted}

var oracleTiers = []events.Tier{
	{Medium: "GPU"}, {Medium: "CPU"}, {}, {Medium: "CPU", Ownership: "x"}, {Medium: "GPU", Locality: "LOCAL"}, {Medium: "GPU", Locality: "REMOTE"},
}

// oracleKind is a model's groups.
type oracleKind struct {
	name        string
	isDescribed bool
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

// numOracleQueries returns how many queries of each kind are asked. HITLINE_TEST_FLEET_QUERIES sets the number of all
// together.
func numOracleQueries(t *testing.T) int {
	if text := os.Getenv("HITLINE_TEST_FLEET_QUERIES"); text != "" {
		n, err := strconv.Atoi(text)
		require.NoError(t, err)
		return n/len(oracleKinds) + 1
	}
	if testing.Short() || raceEnabled {
		return 80
	}
	return 800
}

// After any history of 200 holders queries answer what the model does.
func TestAgainstOracle(t *testing.T) {
	for i, kind := range oracleKinds {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			o := newOracle(t, kind, uint64(i))
			for o.queries < numOracleQueries(t) {
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

	steps, queries, hits, found int
}

func newOracle(t *testing.T, kind oracleKind, seed uint64) *oracle {
	o := &oracle{t: t, rng: rand.New(rand.NewPCG(seed, 26)), holders: map[ID]*Holder{}, numbers: map[string]int{}}
	start := time.Unix(1_000_000, 0)
	o.model = model{kind: kind, start: start, now: start, ttl: time.Minute, holders: map[ID]*modelHolder{}, byHash: map[int][]*modelEntry{}, seen: map[int]bool{}}
	cfg := Config{BlockSize: oracleBlock, FirstBytes: kind.firstBytes, PredictTTL: time.Minute, now: func() time.Time { return o.model.now }}
	if kind.isDescribed {
		cfg.Groups = kind.groups
	}
	var err error
	o.fleet, err = New(cfg)
	require.NoError(t, err)
	for i := range 200 {
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
	o.model.clear(m)
	o.model.holders[id] = m
	if o.rng.IntN(10) > 0 {
		h.SetStale(false)
		m.stale = false
	}
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
		o.model.clear(m)
	case r < 60:
		m.stale = !m.stale
		h.SetStale(m.stale)
	case r < 100:
		o.model.now = o.model.now.Add(time.Duration(o.rng.Int64N(int64(10 * time.Second))))
	case r < 110:
		o.prompts[o.rng.IntN(len(o.prompts))] = o.prompt()
	case r < 115:
		o.fleet.collect()
	case r < 120:
		o.check()
	case r < 220:
		o.predict(h, m)
	case r < 400:
		o.remove(h, m)
	default:
		o.store(h, m)
	}
	if o.steps > 1000 { // holders have something
		o.ask()
		o.ask()
	}
}

// event returns blocks of a group, some of which are left out, and their hashes.
func (o *oracle) event() (*events.Blocks, []int) {
	kind := &o.model.kind
	group := o.rng.IntN(len(kind.groups)+1) - 1
	if group < 0 && o.rng.IntN(4) > 0 {
		group = 0
	}
	spec := kind.groups[max(0, group)]
	stride := spec.BlockSize / oracleBlock
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
		SpecKind: spec.Kind.String(), SlidingWindow: int64(spec.SlidingWindow), Tier: oracleTiers[0]}
	if o.rng.IntN(4) == 0 {
		b.Tier = oracleTiers[o.rng.IntN(len(oracleTiers))]
	}
	return b, hashes
}

func (o *oracle) store(h *Holder, m *modelHolder) {
	b, hashes := o.event()
	held, want := make([]bool, len(hashes)), make([]bool, len(hashes))
	require.NoError(o.t, h.Store(b, held))
	if b.Tier.Locality == "REMOTE" {
		require.Equal(o.t, want, held)
		return
	}
	at := events.GroupTier{Group: b.Group, Tier: b.Tier}
	o.model.seen[max(0, b.Group)] = true
	for i, hash := range hashes {
		e := o.model.entry(m, hash)
		if want[i] = slices.Contains(e.tiers, at); !want[i] {
			e.tiers = append(e.tiers, at)
		}
	}
	require.Equal(o.t, want, held)
	require.Equal(o.t, o.model.entries(m), h.len())
}

func (o *oracle) remove(h *Holder, m *modelHolder) {
	b, hashes := o.event()
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

func (o *oracle) predict(h *Holder, m *modelHolder) {
	n := o.model.kind.hashLen
	prompt := o.prompts[o.rng.IntN(len(o.prompts))][:(1+o.rng.IntN(40))*n]
	require.NoError(o.t, h.Predict(coordinator.NewHashes(prompt, n)))
	for hash := range slices.Chunk(prompt, n) {
		e := o.model.entry(m, o.number(hash))
		e.isPredicted, e.predicted = true, o.model.now
	}
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
	want := o.model.answer(hashes)
	if o.rng.IntN(2) == 0 {
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
	o.fleet.collect()
	require.EqualValues(o.t, len(blocks), o.fleet.Stats().Blocks)
	var want []Status
	for id, m := range o.model.holders {
		want = append(want, Status{id, m.stale, o.model.entries(m)})
	}
	slices.SortFunc(want, func(a, b Status) int { return compareIDs(a.ID, b.ID) })
	require.Equal(o.t, want, o.fleet.Holders())
}
