package coordinator

import (
	"encoding/json"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/conformance"
)

// The recorded worker lookups are reported by the package lookup; here they
// must simply agree.
func TestWorkerLookup(t *testing.T) {
	for file, vllm := range map[string]string{"worker_lookup.json": "", "later/worker_lookup.json": "0.27.1"} {
		t.Run(file, func(t *testing.T) {
			for _, cs := range conformance.LoadWorkers(t, file) {
				if v := judgeWorker(t, cs, vllm); v != (conformance.Verdict{}) {
					t.Errorf("%s: %s", cs.ID, v.Differs)
				}
			}
		})
	}
}

func workerCase(t *testing.T, cs *conformance.WorkerCase, vllm string) (*Coordinator, *conformance.Store) {
	var pool Pool
	require.NoError(t, json.Unmarshal(cs.Raw, &pool))
	pool.VLLM = vllm
	c, err := New(pool)
	require.NoError(t, err, cs.ID)
	store, err := cs.NewStore()
	require.NoError(t, err)
	return c, store
}

func judgeWorker(t *testing.T, cs *conformance.WorkerCase, vllm string) conformance.Verdict {
	c, store := workerCase(t, cs, vllm)
	hashes := NewHashes(cs.Blob(), cs.HashLen)
	hit, err := c.Lookup(cs.TokenLen, hashes, ExistsFunc(store.Exists))
	return cs.Judge(store, hit.Tokens, nil, err, errorClass(err))
}

// fakeStore holds keys and remembers the keys that it checked.
type fakeStore struct {
	held    map[string]bool
	checked []string
	calls   int
}

func (s *fakeStore) exists(keys []string) ([]int, error) {
	s.calls++
	s.checked = keys
	answers := make([]int, len(keys))
	for i, key := range keys {
		if s.held[key] {
			answers[i] = 1
		}
	}
	return answers, nil
}

// letters are one-byte hashes: 'a' is 61 in hex.
func letters(text string) Hashes { return NewHashes([]byte(text), 1) }

func TestKeyText(t *testing.T) {
	c := must(t, Pool{
		ModelName: "org/Model-7B/", CachePrefix: "team/blue", TPSize: 4, NumKVHead: 2, PPSize: 2, PCPRank: 3, DCPRank: 5,
		Groups: []Group{full(16), window(16, 32)},
	})
	require.Len(t, c.Ranks(0), 4, "two heads fill two of four tensor ranks")
	assert.Equal(t, "team/blue@Model-7B@tp_rank:1@pcp3@dcp5@pp_rank:1@group:1@ab0c", c.key(1, 3, []byte{0xAB, 0x0C}))
	c = must(t, Pool{ModelName: "m"})
	assert.Equal(t, "m@tp_rank:0@pcp0@dcp0@pp_rank:0@group:0@61", c.key(0, 0, []byte("a")))
}

func TestRanks(t *testing.T) {
	for _, tc := range []struct {
		name  string
		pool  Pool
		ranks []Rank
	}{
		{"own pcp and dcp rank", Pool{TPSize: 2, PPSize: 2, PCPRank: 1}, []Rank{
			{TP: 0, PP: 0, PCP: 1}, {TP: 0, PP: 1, PCP: 1}, {TP: 1, PP: 0, PCP: 1}, {TP: 1, PP: 1, PCP: 1},
		}},
		{"MLA has one head", Pool{TPSize: 8, NumKVHead: 1}, []Rank{{}}},
		{"0.27.0: replicated heads", Pool{VLLM: "0.28.0", TPSize: 4, NumKVHead: 2, PCPSize: 2}, []Rank{
			{}, {TP: 1}, {PCP: 1}, {TP: 1, PCP: 1},
		}},
		{"0.27.0: MLA", Pool{VLLM: "0.28.0", TPSize: 4, Groups: []Group{{Kind: MLAAttention, BlockSize: 16}}}, []Rank{{}}},
		{"0.27.0: mamba is on every rank", Pool{VLLM: "0.28.0", TPSize: 3, NumKVHead: 1, Groups: []Group{mamba(16)}}, []Rank{
			{}, {TP: 1}, {TP: 2},
		}},
		{"0.27.0: dcp follows tp", Pool{VLLM: "0.28.0", TPSize: 4, NumKVHead: 1, DCPSize: 2}, []Rank{
			{}, {TP: 1, DCP: 1}, {TP: 2}, {TP: 3, DCP: 1},
		}},
		{"0.27.0: pp is innermost", Pool{VLLM: "0.28.0", TPSize: 2, PPSize: 2}, []Rank{
			{}, {PP: 1}, {TP: 1}, {TP: 1, PP: 1},
		}},
	} {
		assert.Equal(t, tc.ranks, must(t, tc.pool).Ranks(0), tc.name)
	}
}

func TestLookupCountsRanks(t *testing.T) {
	c := must(t, Pool{ModelName: "m", TPSize: 2})
	key := func(rank int, hash string) string { return c.key(0, rank, []byte(hash)) }
	store := fakeStore{held: map[string]bool{key(0, "a"): true, key(1, "a"): true, key(0, "b"): true}}
	hit, err := c.Lookup(48, letters("abc"), ExistsFunc(store.exists))
	require.NoError(t, err)
	assert.Equal(t, int64(16), hit.Tokens, "b lacks a rank")
	assert.Equal(t, []string{key(0, "a"), key(1, "a"), key(0, "b"), key(1, "b"), key(0, "c"), key(1, "c")}, store.checked)
}

func TestLookupIsSpared(t *testing.T) {
	store := fakeStore{}
	wide := must(t, Pool{HashBlockSize: 8, Groups: []Group{full(32), window(8, 8)}})
	for _, tc := range []struct {
		tokens int64
		hashes string
	}{{0, "abcd"}, {-32, "abcd"}, {32, ""}, {33, ""}, {32, "abc"}} {
		hit, err := wide.Lookup(tc.tokens, letters(tc.hashes), ExistsFunc(store.exists))
		require.NoError(t, err, "%+v", tc)
		assert.Zero(t, hit)
		// Without a key to check even the finders' errors do not come up.
		var s Scratch
		hit, err = wide.Answer(&Presence{NumHashes: len(tc.hashes), Bits: make([][]uint64, 2)}, tc.tokens, &s)
		require.NoError(t, err, "%+v", tc)
		assert.Zero(t, hit)
	}
	assert.Zero(t, store.calls)
}

func TestLookupErrors(t *testing.T) {
	answering := func(answers []int, err error) ExistsFunc {
		return func([]string) ([]int, error) { return answers, err }
	}
	c := must(t, Pool{})
	_, err := c.Lookup(17, letters("ab"), answering(nil, nil))
	require.ErrorIs(t, err, ErrPrecondition)
	for _, answers := range [][]int{nil, {1}, {1, 1, 1}} {
		_, err = c.Lookup(32, letters("ab"), answering(answers, nil))
		require.ErrorIs(t, err, ErrAnswerCount)
	}
	hit, err := c.Lookup(32, letters("ab"), answering([]int{1, 1}, conformance.ErrStore))
	require.NoError(t, err)
	assert.Zero(t, hit, "a store that fails holds nothing")
	for _, odd := range []int{0, -1, 2} {
		hit, err = c.Lookup(32, letters("ab"), answering([]int{1, odd}, nil))
		require.NoError(t, err)
		assert.Equal(t, int64(16), hit.Tokens, "only 1 is present")
	}

	c = must(t, Pool{TPSize: 2, VLLM: "0.28.0"})
	_, err = c.Lookup(32, letters("ab"), answering([]int{1, 1, 1}, nil))
	require.ErrorIs(t, err, ErrIndexOutOfRange)
	hit, err = c.Lookup(33, letters("ab"), answering([]int{1, 1, 0}, nil))
	require.NoError(t, err, "the missing answer is not reached")
	assert.Equal(t, int64(16), hit.Tokens)
	hit, err = c.Lookup(33, letters("ab"), answering([]int{1, 1, 1, 1, 0}, nil))
	require.NoError(t, err)
	assert.Equal(t, int64(32), hit.Tokens)
}

// The examples of the reference's own tests.
func TestAnswerExamples(t *testing.T) {
	later := func(pool Pool) Pool {
		pool.VLLM = "0.28.0"
		return pool
	}
	for _, tc := range []struct {
		name    string
		pool    Pool
		present []string
		hashes  int
		tokens  int64
		hit     int64
	}{
		{"two of three", Pool{}, []string{"TTF"}, 3, 48, 32},
		{"all of it", Pool{}, []string{"TT"}, 2, 32, 32},
		{"0.27.0: one token is left to compute", later(Pool{}), []string{"TT"}, 2, 32, 16},
		{"0.27.0: one token more", later(Pool{}), []string{"TT"}, 2, 33, 32},
		{"0.27.0: a full hit of one block", later(Pool{}), []string{"T"}, 1, 16, 0},
		{"0.27.0: eagle leaves a block anyway", later(Pool{UseEagle: true}), []string{"TTTT"}, 4, 64, 48},
		{"0.27.0: tail window", later(Pool{Groups: []Group{window(16, 32)}}), []string{"FFTT"}, 4, 65, 64},
		{"0.27.0: no earlier boundary is stored", later(Pool{Groups: []Group{window(16, 32)}}), []string{"FFTT"}, 4, 64, 0},
		{
			"0.27.0: fine-grained tail", later(Pool{HashBlockSize: 4, Groups: []Group{full(8), align(mamba(8))}}),
			[]string{"TTT", "FFT"}, 3, 13, 12,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := Presence{NumHashes: tc.hashes}
			for _, text := range tc.present {
				p.Bits = append(p.Bits, bitsetFrom(parse(text)))
			}
			var s Scratch
			hit, err := must(t, tc.pool).Answer(&p, tc.tokens, &s)
			require.NoError(t, err)
			assert.Equal(t, tc.hit, hit.Tokens)
		})
	}
}

// Lookup over keys and Answer over bits are one lookup.
func TestAnswerAgreesWithLookup(t *testing.T) {
	for seed := range uint64(3000) {
		s := &source{data: randomBytes(seed, 200)}
		pool := s.pool()
		if s.flag() {
			pool.VLLM = "0.28.0"
		}
		c := must(t, pool)
		n := s.below(100)
		hashes := NewHashes(conformance.Blob("x", n, 8), 8)
		tokens := int64(s.below(100)) * c.Alignment()
		p, store := Presence{NumHashes: n}, fakeStore{held: map[string]bool{}}
		for g := range pool.Groups {
			list := s.chunks(n / c.KeyStride(g))
			checked := list[:c.Positions(g, tokens, n)]
			for i := range checked {
				if checked[i] = checked[i] && c.KeyMask(g).At(int64(i)); checked[i] {
					raw := i*c.KeyStride(g) + c.KeyStride(g) - 1
					store.held[c.key(g, 0, hashes.At(raw))] = true
				}
			}
			p.Bits = append(p.Bits, bitsetFrom(checked))
		}
		var scratch Scratch
		want, wantErr := c.Lookup(tokens, hashes, ExistsFunc(store.exists))
		got, err := c.Answer(&p, tokens, &scratch)
		require.Equal(t, errorClass(wantErr), errorClass(err), "seed %d", seed)
		require.Equal(t, want, got, "seed %d", seed)
	}
}

// Lookups take any number of tokens, also in pools whose rules read beyond it.
func TestLookupOfHugePrompts(t *testing.T) {
	for _, pool := range []Pool{
		{VLLM: "0.33.0", UseEagle: true},
		{VLLM: "0.33.0", CacheHitAlignmentTokens: 16, Groups: []Group{full(32), align(mamba(32))}},
		{VLLM: "0.29.0", Groups: []Group{full(32), align(mamba(32))}},
	} {
		for _, strategy := range strategies {
			hit, err := strategy.lookup(must(t, pool), math.MaxInt64, letters("abcd"), ExistsFunc(func(keys []string) ([]int, error) {
				return slices.Repeat([]int{1}, len(keys)), nil
			}))
			if err == nil {
				assert.LessOrEqual(t, hit.Tokens, int64(64), "%s %s", pool.VLLM, strategy.name)
			} else {
				require.ErrorIs(t, err, ErrIndexOutOfRange)
			}
		}
	}
}
