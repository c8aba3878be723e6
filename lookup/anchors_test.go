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
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/internal/anchorplan"
	"github.com/hitline/hitline/lookup/internal/lookuptest"
	"github.com/hitline/hitline/netproto"
)

// tortured is a service that is asked everything both ways, by all hashes and by
// anchors, while its index is stored into, evicted from and reset at random.
type tortured struct {
	*rand.Rand
	t       testing.TB
	service *Service
	hashLen int
	chains  [][]byte // chained lists of hashes that share prefixes
	lied    bool     // requests by anchors that lie come in between, and stores are honest

	lookups [4]int // determined ones, by the number of exchanges; 0: by all hashes
	history []string
}

// newTortured returns nil where the pool is none.
func newTortured(t testing.TB, r *rand.Rand) *tortured {
	w := &tortured{Rand: r, t: t, hashLen: []int{8, 8, 16, 32}[r.IntN(4)]}
	cfg := ServiceConfig{Pool: randomPool(r)}
	if r.IntN(3) > 0 {
		cfg.Memory.MaxEntries = int64(8 + r.IntN(200))
	}
	cfg.Memory.MaxBytes = index.MinMaxBytes
	var err error
	if w.service, err = NewService(cfg); err != nil {
		return nil
	}
	w.grow()
	return w
}

// randomPool returns the pool of some model, which may be no valid one.
func randomPool(r *rand.Rand) coordinator.Pool {
	const hash = 4
	p := coordinator.Pool{
		HashBlockSize: hash, Revision: []coordinator.Revision{coordinator.Revision20260620, coordinator.Revision20260817}[r.IntN(2)],
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

// place returns a group, one of its places, and the group's stride.
func (w *tortured) place() (GroupRank, int) {
	p := w.service.pool
	g := w.IntN(len(p.Groups))
	ranks := w.service.coord.Ranks(g)
	rank := ranks[w.IntN(len(ranks))]
	return GroupRank{Group: uint16(g), TPRank: uint16(rank.TP), PPRank: uint16(rank.PP)}, w.service.coord.Stride(g)
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

// store stores a stretch of a chain for one place, told rightly or wrongly where
// it stands.
func (w *tortured) store(chain []byte, at GroupRank, stride, from, end int, honest bool) {
	keys := w.keysOf(chain, stride, from, end)
	if len(keys) == 0 {
		return
	}
	number := uint32(from)
	var before []byte
	if from > 0 && (honest || w.IntN(4) > 0) {
		before = w.keysOf(chain, stride, from-1, from)
	}
	if !honest {
		switch w.IntN(8) {
		case 0:
			number = netproto.FirstChunkUnknown
		case 1:
			number = uint32(w.IntN(100))
		case 2: // keys that do not belong together
			for i := range len(keys) / w.hashLen {
				if w.IntN(4) == 0 {
					copy(keys[i*w.hashLen:(i+1)*w.hashLen], w.anyHash())
				}
			}
		case 3:
			before = w.anyHash()
		case 4, 5: // the beginning of another chain, of the same length
			other := w.chains[w.IntN(len(w.chains))]
			for i := range w.IntN(len(keys)/w.hashLen + 1) {
				if from+i < len(other)/w.hashLen/stride {
					copy(keys[i*w.hashLen:], w.keysOf(other, stride, from+i, from+i+1))
				}
			}
			if from > 0 && from <= len(other)/w.hashLen/stride {
				before = w.keysOf(other, stride, from-1, from)
			}
		}
	}
	w.note("store %v number %d keys %d from %d before %x: %x", at, number, len(keys)/w.hashLen, from, before, keys)
	require.NoError(w.t, w.service.StoreChain(context.Background(), at, number, before, netproto.NewHashes(keys, w.hashLen)))
}

func (w *tortured) anyHash() []byte {
	chain := w.chains[w.IntN(len(w.chains))]
	at := w.IntN(len(chain)/w.hashLen) * w.hashLen
	return chain[at : at+w.hashLen]
}

// step does something at random.
func (w *tortured) step() {
	chain := w.chains[w.IntN(len(w.chains))]
	if w.lied && w.service.anchorStride > 0 && w.IntN(2) == 0 {
		w.lie()
	}
	switch w.IntN(40) {
	case 0:
		w.note("reset")
		require.NoError(w.t, w.service.Reset(context.Background()))
	case 1, 2, 3, 4:
		at, stride := w.place()
		from, end := w.stretch(chain, stride)
		if w.IntN(2) == 0 {
			end = min(end, from+3)
		}
		keys := w.keysOf(chain, stride, from, end)
		w.note("evict %v %d from %d", at, len(keys)/w.hashLen, from)
		require.NoError(w.t, w.service.Evict(context.Background(), at, netproto.NewHashes(keys, w.hashLen)))
	case 5, 6, 7, 8, 9, 10:
		at, stride := w.place()
		from, end := w.stretch(chain, stride)
		w.store(chain, at, stride, from, end, w.lied)
	case 11, 12, 13, 14, 15, 16: // as engines do, all groups on all ranks
		share := w.Float64()
		for g := range w.service.pool.Groups {
			stride := w.service.coord.Stride(g)
			n := int(share * float64(len(chain)/w.hashLen/stride))
			for _, rank := range w.service.coord.Ranks(g) {
				w.store(chain, GroupRank{Group: uint16(g), TPRank: uint16(rank.TP), PPRank: uint16(rank.PP)}, stride, 0, n, true)
			}
		}
	default:
		w.lookup(chain)
	}
}

// lookup asks for a prefix of a chain both ways.
func (w *tortured) lookup(chain []byte) {
	n := 1 + w.IntN(len(chain)/w.hashLen)
	hashes := chain[:n*w.hashLen]
	pool := w.service.pool
	tokens := n * pool.HashBlockSize
	if w.IntN(4) == 0 {
		tokens = w.IntN(tokens + 40)
	}
	if pool.Revision == coordinator.Revision20260620 {
		tokens -= tokens % w.service.Alignment()
	}
	w.note("lookup %d hashes, %d tokens", n, tokens)
	hit, determined, exchanges, err := w.byAnchors(uint32(tokens), hashes)
	want, wantErr := w.service.Lookup(context.Background(), int64(tokens), netproto.NewHashes(hashes, w.hashLen))
	if !determined {
		w.lookups[0]++
		return
	}
	w.lookups[exchanges]++
	if (err != nil) != (wantErr != nil) || hit.Tokens != want.Tokens {
		for _, line := range w.history {
			w.t.Log(line)
		}
		w.t.Fatalf("pool %+v\n%d tokens, %d hashes: by anchors %d (%v), in full %d (%v)", pool, tokens, n, hit.Tokens, err, want.Tokens, wantErr)
	}
}

// byAnchors is what a client and its server do, without what lies between.
func (w *tortured) byAnchors(tokens uint32, hashes []byte) (hit api.Hit, determined bool, exchanges int, err error) {
	if w.service.anchorStride == 0 { // not served
		return api.Hit{}, false, 0, nil
	}
	var plan anchorplan.Plan
	plan.Begin(hashes, w.hashLen, w.service.anchorStride, uint32(w.service.anchorUnit))
	if w.IntN(3) == 0 {
		plan.Digests = nil // as for long prompts
	}
	for exchanges = 1; exchanges <= 2; exchanges++ {
		a, err := w.exchange(tokens, &plan.Anchors, plan.Blob)
		if err != nil || a.Determined {
			return a.Hit, err == nil, exchanges, err
		}
		require.NoError(w.t, plan.Narrow(hashes, anchorplan.More{Proven: a.Proven, Claimed: a.Claimed, End: a.End}))
	}
	return api.Hit{}, false, 0, nil
}

// exchange is one request by anchors, whose hashes come in pieces.
func (w *tortured) exchange(tokens uint32, anchors *netproto.Anchors, blob []byte) (AnchorsAnswer, error) {
	q := w.service.NewQuery()
	defer q.Release()
	r := netproto.Request{
		Tag: netproto.TagAnchors, NumTokens: uint64(tokens), Unaligned: w.service.unaligned(uint64(tokens)),
		HashLen: w.hashLen, NumHashes: len(blob) / w.hashLen, Anchors: *anchors,
	}
	wanted, err := q.BeginAnchors(&r)
	if err != nil {
		return AnchorsAnswer{}, err
	}
	for wanted && len(blob) > 0 {
		n := len(blob)
		if w.IntN(2) == 0 {
			n = (1 + w.IntN(len(blob)/w.hashLen)) * w.hashLen
		}
		if _, more := q.AddAnchors(blob[:n:n]); !more {
			break
		}
		blob = blob[n:]
	}
	a, err := q.FinishAnchors()
	a.Hit.TailBoundaries = slices.Clone(a.Hit.TailBoundaries) // they were the query's
	return a, err
}

// torture runs a history of that many steps.
func torture(t testing.TB, r *rand.Rand, steps int) [4]int {
	w := newTortured(t, r)
	if w == nil {
		return [4]int{}
	}
	for range steps {
		w.step()
		w.history = w.history[max(0, len(w.history)-200):]
	}
	return w.lookups
}

// stepsOfHistory is how long a random history is: long enough for chains to be
// stored, confirmed, evicted and stored again.
const stepsOfHistory = 300

// tortureEnv is the number of lookups of the long form of TestTorture.
const tortureEnv = "HITLINE_TEST_TORTURE"

// TestTorture asks what random histories have left both ways, by anchors and by
// all hashes, and both must agree whatever was stored.
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
	var done, seed atomic.Int64
	var sums [4]atomic.Int64
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() {
			for done.Load() < int64(least) && !t.Failed() {
				for i, n := range torture(t, rand.New(rand.NewPCG(uint64(seed.Add(1)), 0)), stepsOfHistory) {
					sums[i].Add(int64(n))
					done.Add(int64(n))
				}
			}
		})
	}
	group.Wait()
	t.Logf("%d lookups: %d by anchors in one exchange, %d in two; %d by all hashes", done.Load(), sums[1].Load(), sums[2].Load(), sums[0].Load())
	require.Positive(t, sums[1].Load())
	require.Positive(t, sums[2].Load())
}

// TestAnchorsParameters asks pools for their stride and unit.
func TestAnchorsParameters(t *testing.T) {
	for name, want := range map[string][2]uint32{
		"one group": {1, 1}, "larger blocks": {2, 1}, "hybrid": {1, 4}, "newest": {2, 1}, "eagle": {1, 2}, "ranks": {1, 2},
	} {
		service, err := NewService(ServiceConfig{Pool: lookuptest.AnchoredPools()[name]})
		require.NoError(t, err)
		require.NoError(t, service.AnchorsError())
		stride, unit := service.AnchorsParams()
		require.Equal(t, want, [2]uint32{stride, unit}, name)
	}
}

// TestAnchorsKeepLittle asks by as many anchors as there may be, and looks at what
// the pooled query keeps.
func TestAnchorsKeepLittle(t *testing.T) {
	service, err := NewService(ServiceConfig{Pool: lookuptest.AnchoredPools()["hybrid"]})
	require.NoError(t, err)
	hashes := lookuptest.Chain("a", 4*netproto.MaxAnchors, 32)
	lookuptest.StorePrefix(t, service, hashes, len(hashes)/32) // of another coverage each
	plan := anchorplan.Plan{}
	plan.NumHashes, plan.Stride = uint32(len(hashes)/32), 1
	for i, below := 3, 0; i < len(hashes)/32; i += 4 {
		plan.Add(uint32(i))
		plan.Blob = append(plan.Blob, hashes[i*32:(i+1)*32]...)
		plan.AddDigest(netproto.Digest(hashes[below*32 : (i+1)*32]))
		below = i + 1
	}
	q := service.queries.New().(*Query)
	r := netproto.Request{NumTokens: uint64(len(hashes) / 2), HashLen: 32, NumHashes: netproto.MaxAnchors, Anchors: plan.Anchors}
	_, err = q.BeginAnchors(&r)
	require.NoError(t, err)
	q.AddAnchors(plan.Blob)
	require.LessOrEqual(t, cap(q.anchored.trail.Runs), 256, "a request that is not finished")
	a, err := q.FinishAnchors()
	require.NoError(t, err)
	require.True(t, a.Determined)
	require.EqualValues(t, len(hashes)/2, a.Hit.Tokens)
	q.Release()
	require.LessOrEqual(t, cap(q.anchored.keys), keptAnchorBytes)
	require.Nil(t, q.anchored.request)
}

func FuzzAnchors(f *testing.F) {
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
