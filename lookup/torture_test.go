package lookup

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup/api"
)

// tortured is a service whose index is stored into, evicted from and reset at random. What it
// answers must follow from the presence of each block, asked for alone.
type tortured struct {
	*rand.Rand
	t       testing.TB
	service *Service
	hashLen int
	chains  [][]byte          // chained lists of hashes that share prefixes
	stored  []map[string]bool // keys by place, if the index is so large that nothing is evicted

	lookups, hits int
	history       []string
}

// newTortured returns nil where the pool is none.
func newTortured(t testing.TB, r *rand.Rand) *tortured {
	w := &tortured{Rand: r, t: t, hashLen: []int{8, 8, 16, 32}[r.IntN(4)]}
	cfg := ServiceConfig{Pool: randomPool(r)}
	cfg.Memory.MaxBytes = 8 * index.MinMaxBytes
	bounded := r.IntN(3) > 0
	if bounded {
		cfg.Memory.MaxEntries = int64(8 + r.IntN(200))
		cfg.Memory.MaxBytes = index.MinMaxBytes
	}
	var err error
	if w.service, err = NewService(cfg); err != nil {
		return nil
	}
	if !bounded {
		w.forget()
	}
	w.grow()
	return w
}

// randomPool returns the pool of some model, which may be no valid one.
func randomPool(r *rand.Rand) coordinator.Pool {
	const hash = 4
	p := coordinator.Pool{
		HashBlockSize: hash, VLLM: []string{"", "0.28.0"}[r.IntN(2)],
		UseEagle: r.IntN(4) == 0, TPSize: 1 + r.IntN(2)*r.IntN(2), PPSize: 1 + r.IntN(2)*r.IntN(2),
	}
	for range 1 + r.IntN(3)*r.IntN(2) {
		g := coordinator.Group{Kind: coordinator.FullAttention, BlockSize: hash << r.IntN(3)}
		switch r.IntN(6) {
		case 0:
			g.Kind, g.SlidingWindow = coordinator.SlidingWindow, g.BlockSize*(1+r.IntN(3))
		case 1:
			g.Kind, g.MambaCacheMode = coordinator.Mamba, "align"
		case 2:
			g.Kind, g.AttentionChunkSize = coordinator.ChunkedLocalAttention, g.BlockSize*(1+r.IntN(3))
		}
		g.IsEagleGroup = p.UseEagle && r.IntN(2) == 0
		p.Groups = append(p.Groups, g)
	}
	return p
}

// grow makes chains, most of which leave another one somewhere.
func (w *tortured) grow() {
	for range 2 + w.IntN(5) {
		var chain []byte
		if len(w.chains) > 0 && w.IntN(4) > 0 {
			old := w.chains[w.IntN(len(w.chains))]
			chain = append(chain, old[:w.IntN(len(old)/w.hashLen+1)*w.hashLen]...)
		}
		for range 1 + w.IntN(1+w.IntN(160)) {
			link := sha256.New()
			link.Write(chain[max(0, len(chain)-w.hashLen):])
			_ = binary.Write(link, binary.BigEndian, w.Uint64())
			chain = append(chain, link.Sum(nil)[:w.hashLen]...)
		}
		w.chains = append(w.chains, chain)
	}
}

func (w *tortured) note(format string, args ...any) {
	w.history = append(w.history, fmt.Sprintf(format, args...))
}

// forget empties stored.
func (w *tortured) forget() {
	w.stored = make([]map[string]bool, w.service.ranks.count())
	for i := range w.stored {
		w.stored[i] = map[string]bool{}
	}
}

// groupRank returns a group on one of its ranks, and the group's stride.
func (w *tortured) groupRank() (coordinator.GroupRank, int) {
	g := w.IntN(len(w.service.pool.Groups))
	ranks := w.service.coord.Ranks(g)
	rank := ranks[w.IntN(len(ranks))]
	return coordinator.GroupRank{Group: uint16(g), TPRank: uint16(rank.TP), PPRank: uint16(rank.PP)}, w.service.coord.Stride(g)
}

// keysOf returns the keys of a group's chunks from to end-1 of a chain.
func (w *tortured) keysOf(chain []byte, stride, from, end int) []byte {
	var keys []byte
	for c := from; c < end; c++ {
		at := (c*stride + stride - 1) * w.hashLen
		keys = append(keys, chain[at:at+w.hashLen]...)
	}
	return keys
}

// stretch returns a range of a chain's chunks, often from the beginning.
func (w *tortured) stretch(chain []byte, stride int) (from, end int) {
	n := len(chain) / w.hashLen / stride
	if n == 0 {
		return 0, 0
	}
	if w.IntN(3) == 0 {
		from = w.IntN(n)
	}
	end = n
	if w.IntN(2) == 0 {
		end = from + w.IntN(n-from+1)
	}
	return from, end
}

// mix replaces some of the keys of a chain by those of others, so that what is stored together is
// no chain.
func (w *tortured) mix(keys []byte, stride, from int) {
	n := len(keys) / w.hashLen
	switch w.IntN(4) {
	case 0: // any hashes
		for i := range n {
			if w.IntN(4) == 0 {
				chain := w.chains[w.IntN(len(w.chains))]
				at := w.IntN(len(chain)/w.hashLen) * w.hashLen
				copy(keys[i*w.hashLen:(i+1)*w.hashLen], chain[at:])
			}
		}
	case 1: // the beginning of another chain
		other := w.chains[w.IntN(len(w.chains))]
		for i := range w.IntN(n + 1) {
			if from+i < len(other)/w.hashLen/stride {
				copy(keys[i*w.hashLen:], w.keysOf(other, stride, from+i, from+i+1))
			}
		}
	}
}

// store stores keys at one place.
func (w *tortured) store(at coordinator.GroupRank, keys []byte) {
	if len(keys) == 0 {
		return
	}
	w.note("store %v: %x", at, keys)
	require.NoError(w.t, w.service.Store(context.Background(), at, coordinator.NewHashes(keys, w.hashLen)))
	w.setStored(at, keys, true)
}

// setStored adds keys to stored, or takes them out.
func (w *tortured) setStored(at coordinator.GroupRank, keys []byte, stored bool) {
	if w.stored == nil {
		return
	}
	place, err := w.service.ranks.place(at)
	require.NoError(w.t, err)
	for ; len(keys) > 0; keys = keys[w.hashLen:] {
		w.stored[place][string(keys[:w.hashLen])] = stored
	}
}

// step does something at random.
func (w *tortured) step() {
	chain := w.chains[w.IntN(len(w.chains))]
	switch w.IntN(40) {
	case 0:
		w.note("reset")
		require.NoError(w.t, w.service.Reset(context.Background()))
		if w.stored != nil {
			w.forget()
		}
	case 1, 2, 3, 4:
		at, stride := w.groupRank()
		from, end := w.stretch(chain, stride)
		if w.IntN(2) == 0 {
			end = min(end, from+3)
		}
		keys := w.keysOf(chain, stride, from, end)
		w.note("evict %v: %x", at, keys)
		require.NoError(w.t, w.service.Evict(context.Background(), at, coordinator.NewHashes(keys, w.hashLen)))
		w.setStored(at, keys, false)
	case 5, 6, 7, 8, 9, 10:
		at, stride := w.groupRank()
		from, end := w.stretch(chain, stride)
		keys := w.keysOf(chain, stride, from, end)
		w.mix(keys, stride, from)
		w.store(at, keys)
	case 11, 12, 13, 14, 15, 16: // as engines do, all groups on all ranks
		share := w.Float64()
		for g := range w.service.pool.Groups {
			stride := w.service.coord.Stride(g)
			n := int(share * float64(len(chain)/w.hashLen/stride))
			for _, rank := range w.service.coord.Ranks(g) {
				w.store(coordinator.GroupRank{Group: uint16(g), TPRank: uint16(rank.TP), PPRank: uint16(rank.PP)}, w.keysOf(chain, stride, 0, n))
			}
		}
	default:
		w.lookup(chain)
	}
}

// lookup asks for a prefix of a chain.
func (w *tortured) lookup(chain []byte) {
	n := 1 + w.IntN(len(chain)/w.hashLen)
	hashes := chain[:n*w.hashLen]
	pool := w.service.pool
	tokens := n * pool.HashBlockSize
	if w.IntN(4) == 0 {
		tokens = w.IntN(tokens + 40)
	}
	if w.service.coord.NeedsAligned() {
		tokens -= tokens % w.service.Alignment()
	}
	w.note("lookup %d hashes, %d tokens", n, tokens)
	presence := w.presence(hashes, int64(tokens))
	want, wantErr := w.service.coord.Answer(presence, int64(tokens), new(coordinator.Scratch))
	hit, err := w.ask(hashes, uint64(tokens))
	w.lookups++
	if hit.Tokens > 0 {
		w.hits++
	}
	if (err != nil) != (wantErr != nil) || hit.Tokens != want.Tokens {
		for _, line := range w.history {
			w.t.Log(line)
		}
		w.t.Fatalf("pool %+v\n%d tokens, %d hashes: %d (%v), by the presence of each block %d (%v)", pool, tokens, n, hit.Tokens, err, want.Tokens, wantErr)
	}
}

// ask makes a lookup whose hashes come in pieces.
func (w *tortured) ask(hashes []byte, tokens uint64) (hit api.Hit, err error) {
	q := w.service.NewQuery()
	defer q.Release()
	wanted, err := q.Begin(tokens, w.service.unaligned(tokens), 0, w.hashLen, len(hashes)/w.hashLen)
	for err == nil && wanted && len(hashes) > 0 {
		n := len(hashes)
		if w.IntN(2) == 0 {
			n = (1 + w.IntN(len(hashes)/w.hashLen)) * w.hashLen
		}
		wanted = q.Add(hashes[:n:n])
		hashes = hashes[n:]
	}
	if err != nil {
		return hit, err
	}
	return q.Finish()
}

// presence returns which blocks of a lookup are there, each asked for alone.
func (w *tortured) presence(hashes []byte, tokens int64) *coordinator.Presence {
	coord, n := w.service.coord, len(hashes)/w.hashLen
	p := &coordinator.Presence{NumHashes: n}
	tokenLen, err := coord.TokenLen(tokens)
	require.NoError(w.t, err)
	for g := range coord.NumGroups() {
		positions, stride, mask := coord.Positions(g, tokenLen, n), coord.KeyStride(g), coord.KeyMask(g)
		bits := make([]uint64, positions/64+1)
		for i := range positions {
			hash := coordinator.KeyIndex(i, stride)
			if mask.At(int64(i)) && w.has(g, hashes[hash*w.hashLen:(hash+1)*w.hashLen]) {
				setBits(bits, i, 1)
			}
		}
		p.Bits = append(p.Bits, bits)
	}
	return p
}

// has asks whether all ranks of a group hold a block. The order of eviction stays as it is.
func (w *tortured) has(g int, key []byte) bool {
	cursor, runs := index.Cursor{Quiet: true}, make([]index.Run, 1)
	w.service.index.Begin(&cursor, w.hashLen)
	w.service.index.Probe(&cursor, key, 1, runs, false)
	w.service.index.End(&cursor)
	has := runs[0].Coverage != nil && runs[0].Coverage.Complete>>g&1 == 1
	if w.stored != nil {
		want := true
		for _, place := range w.service.required[g] {
			want = want && w.stored[place][string(key)]
		}
		require.Equal(w.t, want, has, "group %d, %x: %v", g, key, w.history)
	}
	return has
}

// torture runs a history of that many steps.
func torture(t testing.TB, r *rand.Rand, steps int) (lookups, hits int) {
	w := newTortured(t, r)
	if w == nil {
		return 0, 0
	}
	for range steps {
		w.step()
		w.history = w.history[max(0, len(w.history)-200):]
	}
	return w.lookups, w.hits
}

// stepsOfHistory is how long a random history is: long enough for chains to be stored, evicted and
// stored again.
const stepsOfHistory = 300

// tortureEnv is the number of lookups of the long form of TestTorture.
const tortureEnv = "HITLINE_TEST_TORTURE"

// TestTorture looks up what random histories have left.
func TestTorture(t *testing.T) {
	least := 100_000
	if text := os.Getenv(tortureEnv); text != "" {
		var err error
		least, err = strconv.Atoi(text)
		require.NoError(t, err)
	} else if lookuptest.Race || testing.Short() {
		least = 5_000
	}
	var group sync.WaitGroup
	var done, hits, seed atomic.Int64
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() {
			for done.Load() < int64(least) && !t.Failed() {
				lookups, hit := torture(t, rand.New(rand.NewPCG(uint64(seed.Add(1)), 0)), stepsOfHistory)
				done.Add(int64(lookups))
				hits.Add(int64(hit))
			}
		})
	}
	group.Wait()
	t.Logf("%d lookups, %d with a hit", done.Load(), hits.Load())
	require.Greater(t, hits.Load(), done.Load()/10)
	require.Less(t, hits.Load(), done.Load()*9/10)
}

func FuzzTorture(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(seed, []byte{byte(seed)})
	}
	f.Fuzz(func(t *testing.T, seed uint64, data []byte) {
		h := fnv.New64a()
		_, _ = h.Write(data)
		torture(t, rand.New(&tape{data: data, rest: rand.NewPCG(seed, h.Sum64())}), 60)
	})
}

// tape gives numbers from a fuzzer's data first.
type tape struct {
	data []byte
	rest *rand.PCG
}

func (s *tape) Uint64() uint64 {
	if len(s.data) < 8 {
		return s.rest.Uint64()
	}
	v := binary.LittleEndian.Uint64(s.data)
	s.data = s.data[8:]
	return v
}
