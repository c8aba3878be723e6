package lookup

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/internal/oracle"
)

// FuzzEqualHashes asks for hashes of which many are equal. Hashes of a chain never are, so such
// a request has no right answer. But it must not harm: the hit is at most what its tokens and
// its hashes allow, and what it holds and asks for is bounded as for any other request.
func FuzzEqualHashes(f *testing.F) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 5))
		f.Add(seed, uint8(r.IntN(8)), uint16(r.IntN(300)), uint32(r.IntN(5000)))
	}
	f.Fuzz(func(t *testing.T, seed uint64, letters uint8, numHashes uint16, tokens uint32) {
		newEqualHashes(t, seed, int(letters)+1, int(numHashes)%2048).lookup(int64(tokens))
	})
}

// equalHashes is a random pool, over the memory index and over a store with the same blocks, and
// a request whose hashes are those of a small alphabet.
type equalHashes struct {
	t        *testing.T
	services map[string]*Service
	pool     coordinator.Pool // with defaults
	rounds   int              // calls of Exists
	asked    int              // keys
	hashes   coordinator.Hashes
}

func newEqualHashes(t *testing.T, seed uint64, letters, numHashes int) *equalHashes {
	d := &differential{Rand: rand.New(rand.NewPCG(seed, 16)), t: t}
	d.slow = oracle.RandomPool(d.Rand)
	pool, _ := d.pool()
	e := &equalHashes{t: t, services: map[string]*Service{}}
	store := &lookuptest.KeyStore{Before: func(_ context.Context, op string, keys []string) error {
		if op == "exists" {
			e.rounds++
			e.asked += len(keys)
		}
		return nil
	}}
	for name, cfg := range map[string]ServiceConfig{
		"memory": {Memory: index.Config{MaxBytes: index.MinMaxBytes}},
		"store":  {Backend: store, Remote: RemoteConfig{Timeout: lookuptest.Patience}},
	} {
		cfg.Pool = pool
		s, err := NewService(cfg)
		require.NoError(t, err)
		e.services[name] = s
	}
	e.pool = e.services["memory"].Coordinator().Pool()
	e.store(d.Rand, letters)
	var blob []byte
	for range numHashes {
		blob = append(blob, letter(d.IntN(letters))...)
	}
	e.hashes = coordinator.NewHashes(blob, diffHashLen)
	return e
}

// letter returns a hash.
func letter(i int) []byte { return []byte{byte(i), 1, 2, 3, 4, 5, 6, 7} }

// store stores most letters, and some of them on some ranks only.
func (e *equalHashes) store(r *rand.Rand, letters int) {
	c := e.services["memory"].Coordinator()
	for g := range c.NumGroups() {
		lack := r.IntN(8)
		for i := range letters {
			partly := r.IntN(4) == 0
			for _, rank := range c.Ranks(g) {
				if r.IntN(8) < lack && (partly || lack == 7) {
					continue
				}
				at := coordinator.GroupRank{Group: uint16(g), TPRank: uint16(rank.TP), PPRank: uint16(rank.PP), PCPRank: uint16(rank.PCP)}
				for _, s := range e.services {
					require.NoError(e.t, s.Store(e.t.Context(), at, coordinator.NewHashes(letter(i), diffHashLen)))
				}
			}
		}
	}
}

func (e *equalHashes) lookup(tokens int64) {
	c := e.services["memory"].Coordinator()
	covered := int64(e.hashes.Len() * e.pool.HashBlockSize)
	if slices.ContainsFunc(e.pool.Groups, func(g coordinator.Group) bool { return g.Kind == coordinator.ChunkedLocalAttention }) {
		tokens = min(tokens, covered) // its rule counts what lies before the last chunk as computed, without hashes
	}
	tokens -= tokens % c.Alignment() // or it is refused, up to 0.26.0
	allowed := min(tokens, covered)
	check := func(way string, hit int64, err error) {
		e.t.Helper()
		if err != nil { // of the rules, for a request with fewer hashes than tokens
			require.Contains(e.t, []string{"IndexError", "AssertionError"}, classOf(err), way)
		}
		require.True(e.t, 0 <= hit && hit <= allowed, "%s: a hit of %d of %d tokens, %d hashes\n%+v", way, hit, tokens, e.hashes.Len(), e.pool)
	}
	for name, s := range e.services {
		e.rounds, e.asked = 0, 0
		hit, err := s.Lookup(e.t.Context(), tokens, e.hashes)
		check(name, hit.Tokens, err)
		require.LessOrEqual(e.t, e.rounds, 4, name)
		keys := 0
		for g := range c.NumGroups() {
			keys += e.hashes.Len() / c.KeyStride(g) * len(c.Ranks(g))
		}
		require.LessOrEqual(e.t, e.asked, keys, name)
		_, err = s.Explain(e.t.Context(), tokens, e.hashes)
		check(name+", explained", 0, err)
	}
	q := e.services["memory"].memory.NewQuery()
	defer q.Release()
	wanted, err := q.Begin(uint64(tokens), false, 0, diffHashLen, e.hashes.Len())
	require.NoError(e.t, err)
	for i := 0; wanted && i < e.hashes.Len(); i++ {
		wanted = q.Add(e.hashes.At(i))
	}
	require.LessOrEqual(e.t, q.Held(), 64<<10, "held by a lookup of %d hashes", e.hashes.Len())
	hit, err := q.Finish()
	check("memory, a hash at a time", hit.Tokens, err)
}
