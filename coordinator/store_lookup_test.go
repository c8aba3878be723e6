package coordinator

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/conformance"
)

// rounds is a store that remembers each call.
type rounds struct {
	held  map[string]bool
	calls [][]string
	times map[string]int // that a key was checked
}

func (s *rounds) exists(keys []string) ([]int, error) {
	s.calls = append(s.calls, keys)
	if s.times == nil {
		s.times = map[string]int{}
	}
	answers := make([]int, len(keys))
	for i, key := range keys {
		s.times[key]++
		if s.held[key] {
			answers[i] = 1
		}
	}
	return answers, nil
}

// stoppingRounds answers chunks of keys until no further one matters.
type stoppingRounds struct {
	RemembersNothing
	rounds
	chunkLen int
	left     int // keys that were not asked for
}

func (s *stoppingRounds) Reserve(int64) error { return nil }

func (s *stoppingRounds) Exists(keys *Keys) (answers []int, err error) {
	texts, end := keys.Strings(), keys.Len()
	for from := 0; from < end; from = len(answers) {
		chunk, _ := s.exists(texts[from:min(from+s.chunkLen, len(texts))])
		s.calls = s.calls[:len(s.calls)-1]
		answers = append(answers, chunk...)
		for i, answer := range chunk {
			switch e := keys.End(from + i); {
			case e <= from+i:
				return nil, fmt.Errorf("key %d is behind its End, %d", from+i, e)
			case answer != 1:
				end = min(end, e)
			}
		}
	}
	s.calls = append(s.calls, texts[:len(answers)])
	s.left += keys.Len() - len(answers)
	return answers, nil
}

func (s *rounds) sizes() (sizes []int) {
	for _, keys := range s.calls {
		sizes = append(sizes, len(keys))
	}
	return sizes
}

// serial are n hashes of 8 bytes, all different.
func serial(n int) Hashes {
	var blob []byte
	for i := range n {
		blob = binary.BigEndian.AppendUint64(blob, uint64(i))
	}
	return NewHashes(blob, 8)
}

// hold makes the store hold positions of a group on all ranks but the first lack.
func (s *rounds) hold(c *Coordinator, g int, hashes Hashes, lack int, positions func(i int) bool) {
	if s.held == nil {
		s.held = map[string]bool{}
	}
	stride := c.KeyStride(g)
	for i := range hashes.Len() / stride {
		for rank := lack; rank < len(c.Ranks(g)) && positions(i); rank++ {
			s.held[c.key(g, rank, hashes.At(i*stride+stride-1))] = true
		}
	}
}

func below(n int) func(i int) bool { return func(i int) bool { return i < n } }

// TestLookupRounds says how many keys each round of a lookup asks.
func TestLookupRounds(t *testing.T) {
	const n = 2048
	const all = n * 16
	hashes := serial(n)
	hybrid := Pool{Groups: []Group{full(16), window(16, 1024)}}
	eagle := Pool{UseEagle: true, Groups: []Group{full(16), window(16, 1024)}}
	state := Pool{Groups: []Group{full(16), mamba(16)}}
	for _, tc := range []struct {
		name   string
		pool   Pool
		hashes int
		held   []int // leading positions of each group
		hit    int64
		sizes  []int
	}{
		{"first block missing", Pool{}, n, []int{0}, 0, []int{64}},
		{"first block missing, 4 ranks", Pool{TPSize: 4}, n, []int{0}, 0, []int{256}},
		{"gap within the first round", Pool{}, n, []int{63}, 63 * 16, []int{64}},
		{"gap behind it", Pool{}, n, []int{64}, 64 * 16, []int{64, n - 64}},
		{"full hit", Pool{}, n, []int{n}, all, []int{64, n - 64}},
		{"full hit, eagle", Pool{UseEagle: true}, n, []int{n}, all - 16, []int{64, n - 64}},
		{"few enough at once", Pool{}, 192, []int{0}, 0, []int{192}},
		{"one more", Pool{}, 193, []int{0}, 0, []int{64}},
		{"one more, full hit", Pool{}, 193, []int{193}, 193 * 16, []int{64, 129}},
		{"0.27.0: full hit", Pool{VLLM: "0.28.0"}, n, []int{n}, all - 16, []int{64, n - 64}},
		{"two full specs", Pool{Groups: []Group{full(16), {Kind: FullAttention, BlockSize: 16, Variant: 1}}}, n, []int{0, n}, 0, []int{64}},
		{"hybrid: first block missing", hybrid, n, []int{0, n}, 0, []int{64}},
		{"hybrid: full hit", hybrid, n, []int{n, n}, all, []int{64, n - 64 + 64}},
		{"hybrid: gap", hybrid, n, []int{1000, n}, 16000, []int{64, n - 64 + 64, 64}},
		{"hybrid: no window", hybrid, n, []int{1000, 0}, 0, []int{64, n - 64 + 64, 64, 1000 - 64}},
		{"hybrid: early gap", hybrid, n, []int{10, n}, 160, []int{64, 10}},
		{"hybrid, eagle: full hit", eagle, n, []int{n, n}, all - 16, []int{64, n - 64 + 64 + 1}},
		{"state: full hit", state, n, []int{n, n}, all, []int{64, n - 64 + 1}},
		{"state: none", state, n, []int{n, 0}, 0, []int{64, n - 64 + 1, 1, n - 2}},
		{"window alone", Pool{Groups: []Group{window(16, 1024)}}, n, []int{n}, all, []int{64}},
		{"window alone, nothing", Pool{Groups: []Group{window(16, 1024)}}, n, []int{0}, 0, []int{64, n - 64}},
		{"state alone", Pool{Groups: []Group{mamba(16)}}, n, []int{7}, 7 * 16, []int{1, n - 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := must(t, tc.pool)
			h := NewHashes(hashes.Bytes()[:8*tc.hashes], 8)
			var store rounds
			for g, held := range tc.held {
				store.hold(c, g, h, 0, below(held))
			}
			hit, err := c.Lookup(int64(16*tc.hashes), h, ExistsFunc(store.exists))
			require.NoError(t, err)
			assert.Equal(t, tc.hit, hit.Tokens)
			assert.Equal(t, tc.sizes, store.sizes())
		})
	}
}

// The bounds that a long prompt is promised.
func TestLookupLongPrompt(t *testing.T) {
	const n = 131072
	hashes := serial(n)
	pools := benchPools()
	pools["eagle states"] = Pool{UseEagle: true, Groups: []Group{full(16), mamba(64), window(16, 1024)}}
	if !raceEnabled && !testing.Short() && math.MaxInt > math.MaxInt32 { // it takes long, for gigabytes of keys
		pools["many"] = Pool{Groups: slices.Repeat([]Group{full(16), full(32)}, 50)}
	}
	for name, pool := range pools {
		for _, ranks := range []int{1, 4} {
			pool.TPSize = ranks
			c := must(t, pool)
			if !c.attention[0].Kind.IsFull() {
				continue
			}
			lookup := func(answer int) (tokens int64, sizes []int) {
				hit, err := c.Lookup(16*n, hashes, ExistsFunc(func(keys []string) ([]int, error) {
					sizes = append(sizes, len(keys))
					return slices.Repeat([]int{answer}, len(keys)), nil
				}))
				require.NoError(t, err)
				return hit.Tokens, sizes
			}
			hit, sizes := lookup(0)
			assert.Zero(t, hit)
			checked := 0
			for _, size := range sizes {
				checked += size
			}
			assert.LessOrEqual(t, checked, 64*ranks, name)
			assert.True(t, len(sizes) == 1 || c.hitMayGrow(), "%s: %v", name, sizes)
			hit, sizes = lookup(1)
			assert.GreaterOrEqual(t, hit, int64(16*n-128))
			assert.Len(t, sizes, 2, "%s: all is stored", name)
		}
	}
}

// Errors are the same, whichever round they come in.
func TestStoreLookupErrors(t *testing.T) {
	const n = 1000
	for _, vllm := range []string{"", "0.27.0"} {
		c := must(t, Pool{TPSize: 2, VLLM: vllm})
		for bad := range 2 {
			lookup := func(answer func(answers []int) ([]int, error)) (Hit, error) {
				round := -1
				return c.Lookup(16*n, serial(n), ExistsFunc(func(keys []string) ([]int, error) {
					round++
					answers := slices.Repeat([]int{1}, len(keys))
					if round == bad {
						return answer(answers)
					}
					return answers, nil
				}))
			}
			hit, err := lookup(func([]int) ([]int, error) { return nil, conformance.ErrStore })
			require.NoError(t, err)
			assert.Zero(t, hit, "a store that fails holds nothing")
			_, err = lookup(func(a []int) ([]int, error) { return a[1:], nil })
			want := ErrAnswerCount
			if vllm != "" {
				want = ErrIndexOutOfRange
			}
			require.ErrorIs(t, err, want)
			hit, err = lookup(func(a []int) ([]int, error) { return append(a, 1), nil })
			if vllm != "" {
				require.NoError(t, err)
				assert.EqualValues(t, 16*n-16, hit.Tokens)
			} else {
				require.ErrorIs(t, err, ErrAnswerCount)
			}
			hit, err = lookup(func(a []int) ([]int, error) { a[0] = 2; return a, nil })
			require.NoError(t, err)
			assert.EqualValues(t, 64*16*bad, hit.Tokens, "only 1 is present")
		}
	}
	var none rounds
	c := must(t, Pool{HashBlockSize: 8, Groups: []Group{full(32), window(8, 8)}})
	hit, err := c.Lookup(32, letters("abc"), ExistsFunc(none.exists))
	require.NoError(t, err)
	assert.Zero(t, hit)
	_, err = c.Lookup(33, letters("abcdefgh"), ExistsFunc(none.exists))
	require.ErrorIs(t, err, ErrPrecondition)
	hit, err = c.Lookup(0, letters("abc"), ExistsFunc(none.exists))
	require.NoError(t, err)
	assert.Zero(t, hit)
	assert.Empty(t, none.calls)
	c = must(t, Pool{Groups: []Group{window(16, 32)}})
	_, err = c.Lookup(160, letters("abc"), ExistsFunc(none.exists))
	require.ErrorIs(t, err, ErrIndexOutOfRange)
	assert.Len(t, none.calls, 1, "a store that fails is noticed")
}

// lookupCase is a random lookup over a random store.
type lookupCase struct {
	c      *Coordinator
	tokens int64
	start  int64
	chunk  int    // keys that a store is asked for at a time
	hashes Hashes // of the whole prompt
	held   map[string]bool
}

// fromStart returns the hashes from the start on.
func (g *lookupCase) fromStart() Hashes { return g.c.HashesFrom(g.hashes, g.start) }

func (s *source) lookupCase(t testing.TB) lookupCase {
	pool := s.pool()
	if s.flag() {
		pool.VLLM = "0.28.0"
		for g := range pool.Groups {
			if pool.Groups[g].Kind == Mamba && s.flag() {
				pool.Groups[g].MambaCacheMode = "align"
			}
		}
	}
	pool.TPSize, pool.PPSize = 1+s.below(2), 1+s.below(2)
	c, err := New(pool)
	require.NoError(t, err)
	n := s.below(250)
	if s.flag() {
		n *= 1 + s.below(4)
	}
	hashes := serial(n)
	g := lookupCase{c: c, hashes: hashes, held: map[string]bool{}, chunk: 1 + s.below(100)}
	c.sectionHashes = 1 + s.below(100)
	g.tokens = int64(n * pool.HashBlockSize)
	if s.flag() {
		g.tokens += int64(s.below(8)-4) * int64(pool.HashBlockSize)
	}
	if c.NeedsAligned() {
		g.tokens = floorTo(max(0, g.tokens), c.Alignment())
	}
	if s.flag() {
		g.start = c.HashesFrom(hashes, min(g.tokens, int64(s.below(250)*pool.HashBlockSize))).Start()
	}
	for group := range pool.Groups {
		stride := c.KeyStride(group)
		list := s.chunks(n / stride)
		lack, rank := s.below(8), s.below(4) // a rank that lacks some
		for i, stored := range list {
			for r := range c.Ranks(group) {
				if stored && !(lack == 1 && r == rank && i%5 == 3) {
					g.held[c.key(group, r, hashes.At(i*stride+stride-1))] = true
				}
			}
		}
	}
	return g
}

// compare compares a lookup with one in a single round. One over a store that stops at gaps has the same
// answer in as many rounds at most. It returns how many keys that one was spared.
func (g *lookupCase) compare(t testing.TB) (spared int) {
	t.Helper()
	inRounds := rounds{held: g.held}
	hit, err := g.c.Lookup(g.tokens, g.fromStart(), ExistsFunc(inRounds.exists))
	g.check(t, &inRounds, hit, err)
	stopping := stoppingRounds{rounds: rounds{held: g.held}, chunkLen: g.chunk}
	stopped, stoppedErr := g.c.Lookup(g.tokens, g.fromStart(), &stopping)
	g.check(t, &stopping.rounds, stopped, stoppedErr)
	if len(stopping.calls) > len(inRounds.calls) {
		t.Fatalf("pool %+v: stopping costs rounds: %v, and %v without", g.c.Pool(), stopping.sizes(), inRounds.sizes())
	}
	return stopping.left
}

// check checks a lookup and the calls that it has made.
func (g *lookupCase) check(t testing.TB, inRounds *rounds, hit Hit, err error) {
	t.Helper()
	describe := func(format string, args ...any) {
		t.Helper()
		t.Fatalf("pool %+v\ntokens %d, start %d, hashes %d\n%s", g.c.Pool(), g.tokens, g.start, g.hashes.Len(), fmt.Sprintf(format, args...))
	}
	lookup := rounds{held: g.held}
	want, wantErr := g.c.lookupAll(g.tokens, g.fromStart(), ExistsFunc(lookup.exists))
	if errorClass(err) != errorClass(wantErr) || hit.Tokens != want.Tokens || !slices.Equal(hit.TailBoundaries, want.TailBoundaries) {
		describe("in rounds: %v, %v; in one: %v, %v", hit, err, want, wantErr)
	}
	if g.start > 0 {
		whole := rounds{held: maps.Clone(g.held)}
		for group := range g.c.groups {
			whole.hold(g.c, group, g.hashes, 0, below(g.c.FirstPosition(group, g.start)))
		}
		want, wantErr := g.c.lookupAll(g.tokens, g.hashes, ExistsFunc(whole.exists))
		if errorClass(err) != errorClass(wantErr) || hit.Tokens != want.Tokens || !slices.Equal(hit.TailBoundaries, want.TailBoundaries) {
			describe("from the start: %v, %v; with all before it in the store: %v, %v", hit, err, want, wantErr)
		}
	}
	most, fullHit := maxRoundsWithoutFull, false
	if g.c.attention[0].Kind.IsFull() {
		most, fullHit = maxRounds, allHeld(&lookup)
	}
	if fullHit {
		most = 2
	}
	if len(inRounds.calls) > most {
		describe("%d rounds, at most %d are right: %v keys", len(inRounds.calls), most, inRounds.sizes())
	}
	for _, keys := range inRounds.calls {
		if len(keys) == 0 {
			describe("a round without keys")
		}
	}
	for key, times := range inRounds.times {
		if lookup.times[key] == 0 || times > 1 {
			describe("key %s is checked %d times, and %d times in one round", key, times, lookup.times[key])
		}
	}
	if err != nil || hit.Tokens == 0 {
		return
	}
	// The keys of every block of the answer have been checked.
	p, s := g.presence(t, &lookup), Scratch{}
	if _, err := g.c.Answer(p, g.tokens, &s); err != nil {
		describe("%v", err)
	}
	for group := range g.c.groups {
		for _, raw := range g.made(&s, group) {
			for rank := range g.c.Ranks(group) {
				key := g.c.key(group, rank, g.hashes.At(raw))
				if inRounds.times[key] == 0 && lookup.times[key] > 0 {
					describe("hash %d of group %d has not been checked, and the answer is %d", raw, group, hit)
				}
			}
		}
	}
}

func allHeld(s *rounds) bool {
	for key := range s.times {
		if !s.held[key] {
			return false
		}
	}
	return true
}

// presence is that of what the store has. The lookup must have keys.
func (g *lookupCase) presence(t testing.TB, store *rounds) *Presence {
	l, err := g.c.newStoreLookup(g.tokens, g.fromStart())
	require.NoError(t, err)
	defer l.release()
	l.wantAll()
	_, storeErr, err := l.exists(ExistsFunc(store.exists))
	require.NoError(t, storeErr)
	require.NoError(t, err)
	p := &Presence{NumHashes: l.presence.NumHashes, Start: l.presence.Start}
	for _, set := range l.presence.Bits {
		p.Bits = append(p.Bits, slices.Clone(set))
	}
	return p
}

// made returns the raw hashes of the blocks that a group's part of an answer is
// made of.
func (g *lookupCase) made(s *Scratch, group int) (raw []int) {
	stride, found := g.c.Stride(group), s.results[g.c.groups[group].attention].groupHit
	for start, end := range s.Mask(group).Runs() {
		for i := int(start); i < int(end); i++ {
			last := i*stride + stride - 1
			if inHit := int(found.hit)/g.c.pool.HashBlockSize - 1; g.c.fineGrained && inHit < last {
				if last = inHit; last < i*stride {
					continue
				}
				if g.c.pool.Groups[group].Kind.IsFull() && g.c.IsEagle(group) {
					continue // the hit ends where a later hash was found
				}
			}
			raw = append(raw, last)
		}
	}
	return raw
}

func FuzzLookupRounds(f *testing.F) {
	for seed := range uint64(64) {
		f.Add(randomBytes(seed, 200))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		g := (&source{data: data}).lookupCase(t)
		g.compare(t)
	})
}

// A plain test run compares this many random lookups without the fuzzer.
func TestLookupAgreesWithOneRound(t *testing.T) {
	spared := 0
	for seed := range seedsFor(1_500) {
		g := (&source{data: randomBytes(seed, 200)}).lookupCase(t)
		spared += g.compare(t)
	}
	assert.Positive(t, spared)
}

// seedsFor returns how many random cases a test tries, a tenth of n with the race detector.
func seedsFor(n uint64) uint64 {
	if raceEnabled {
		return n / 10
	}
	return n
}
