package lookup

import (
	"bytes"
	"context"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup/internal/lookuptest"
	"github.com/hitline/hitline/netproto"
)

// truth returns the chain of blocks that ends in a hash, and nil if it is of none.
func (w *tortured) truth(hash []byte) []byte {
	stride := w.service.anchorStride
	for _, chain := range w.chains {
		for b := range len(chain) / w.hashLen / stride {
			if bytes.Equal(w.keysOf(chain, stride, b, b+1), hash) {
				return w.keysOf(chain, stride, 0, b+1)
			}
		}
	}
	return nil
}

func (w *tortured) random(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(w.Uint32())
	}
	return b
}

// lieCall is a request by anchors that lies.
type lieCall struct {
	netproto.Anchors
	blob []byte
}

// lie sends a request by anchors that is well formed and says anything. Its answer
// must not be more than a full lookup finds of one list that it may stand for: the
// chain of an anchor and the hashes behind it.
func (w *tortured) lie() {
	stride := w.service.anchorStride
	var call lieCall
	call.NumHashes, call.Stride = uint32(1+w.IntN(250)), uint32(stride)
	anchors := w.lieAnchors(&call)
	var behind []byte
	if w.IntN(2) == 0 {
		behind = w.lieHashes(&call)
	}
	tokens := 4 * int(call.NumHashes)
	if w.IntN(4) == 0 {
		tokens = 1 << 20
	}
	tokens -= tokens % w.service.Alignment()
	w.note("lie %+v with %x", call.Anchors, call.blob)
	a, err := w.exchange(uint32(tokens), &call.Anchors, call.blob)
	if err != nil || !a.Determined {
		return
	}
	most := uint32(0)
	for i := -1; i < len(anchors); i++ {
		var list []byte
		if i >= 0 {
			list = w.truth(anchors[i])
		}
		if len(list)/w.hashLen == int(call.First) {
			list = append(list, behind...)
		}
		hit, err := w.service.Lookup(context.Background(), int64(tokens), netproto.NewHashes(w.spread(list, int(call.NumHashes)), w.hashLen))
		require.NoError(w.t, err)
		most = max(most, uint32(hit.Tokens))
	}
	if uint32(a.Hit.Tokens) > most {
		for _, line := range w.history {
			w.t.Log(line)
		}
		w.t.Fatalf("pool %+v\n%d tokens: a lie hits %d, what it stands for %d", w.service.pool, tokens, a.Hit, most)
	}
}

// lieAnchors adds anchors to a request, mostly of hashes that there are, and often
// under their numbers.
func (w *tortured) lieAnchors(call *lieCall) (hashes [][]byte) {
	type anchor struct {
		number uint32
		hash   []byte
	}
	var all []anchor
	for range w.IntN(6) {
		chain := w.chains[w.IntN(len(w.chains))]
		n := len(chain) / w.hashLen / int(call.Stride)
		if n == 0 {
			continue
		}
		b := w.IntN(n)
		at := anchor{uint32(b), w.keysOf(chain, int(call.Stride), b, b+1)}
		switch w.IntN(8) {
		case 0:
			at.number = uint32(w.IntN(n))
		case 1:
			at.number = ^uint32(w.IntN(3))
		case 2:
			at.hash = w.random(w.hashLen)
		case 3:
			at.hash = w.anyHash()
		}
		all = append(all, at)
	}
	slices.SortFunc(all, func(a, b anchor) int { return int(int64(a.number) - int64(b.number)) })
	digests := w.IntN(3)
	for i, at := range all {
		if i > 0 && at.number == all[i-1].number {
			continue // the reader refuses it
		}
		call.Add(at.number)
		call.blob = append(call.blob, at.hash...)
		if hashes = append(hashes, at.hash); digests > 0 {
			call.AddDigest(w.lieDigest(hashes, digests == 1))
		}
	}
	return hashes
}

// lieDigest returns the digest of the chain between the last two anchors, or any.
func (w *tortured) lieDigest(anchors [][]byte, right bool) uint64 {
	chain := w.truth(anchors[len(anchors)-1])
	if !right || chain == nil {
		return w.Uint64()
	}
	if len(anchors) > 1 {
		if before := w.truth(anchors[len(anchors)-2]); len(before) < len(chain) {
			chain = chain[len(before):]
		}
	}
	return netproto.Digest(chain)
}

// lieHashes adds blocks of some chain behind the anchors.
func (w *tortured) lieHashes(call *lieCall) []byte {
	chain := w.chains[w.IntN(len(w.chains))]
	n := len(chain) / w.hashLen / int(call.Stride)
	if n == 0 {
		return nil
	}
	from := w.IntN(n)
	if k := call.Len(); k > 0 && w.IntN(3) > 0 {
		call.First = call.Number(k-1) + 1
	} else if w.IntN(2) == 0 {
		call.First = uint32(from)
	} else {
		call.First = w.Uint32()
	}
	if int64(call.First) < int64(n) && w.IntN(2) == 0 {
		from = int(call.First)
	}
	hashes := w.keysOf(chain, int(call.Stride), from, n)
	call.blob = append(call.blob, hashes...)
	return hashes
}

// spread makes n raw hashes of blocks; what lies between or behind them is nowhere.
func (w *tortured) spread(blocks []byte, n int) []byte {
	stride := w.service.anchorStride
	raw := w.random(n * w.hashLen)
	for b := range min(len(blocks)/w.hashLen, n/stride) {
		copy(raw[(b*stride+stride-1)*w.hashLen:], blocks[b*w.hashLen:(b+1)*w.hashLen])
	}
	return raw
}

// TestLiar has requests that lie come between honest lookups. Stores tell the
// truth, at least about what they say: who can store can do worse than lie.
func TestLiar(t *testing.T) {
	seeds := uint64(300)
	if lookuptest.Race || testing.Short() {
		seeds = 30
	}
	determined := 0
	for seed := range seeds {
		w := newTortured(t, rand.New(rand.NewPCG(seed, 7)))
		if w == nil {
			continue
		}
		w.lied = true
		for range stepsOfHistory {
			w.step()
			w.history = w.history[max(0, len(w.history)-200):]
		}
		determined += w.lookups[1] + w.lookups[2]
	}
	t.Logf("%d lookups by anchors", determined)
	require.Positive(t, determined)
}

// TestLiarAndLyingStore shows what it takes to make a wrong link sure: a store that
// says it, and a lookup that is not of a chain. The answer is then that of what was
// stored, and not of the prompt's own hashes, until the entry goes.
func TestLiarAndLyingStore(t *testing.T) {
	service, err := NewService(ServiceConfig{Pool: coordinator.Pool{HashBlockSize: 16}})
	require.NoError(t, err)
	w := &tortured{Rand: rand.New(rand.NewPCG(1, 1)), t: t, service: service, hashLen: 32}
	honest, other := lookuptest.Chain("honest", 8, 32), lookuptest.Chain("other", 8, 32)
	ask := func(hashes []byte) uint32 {
		hit, determined, _, err := w.byAnchors(uint32(len(hashes)/2), hashes)
		require.NoError(t, err)
		if !determined {
			hit, err = service.Lookup(t.Context(), int64(len(hashes)/2), netproto.NewHashes(hashes, 32))
			require.NoError(t, err)
		}
		return uint32(hit.Tokens)
	}
	require.NoError(t, service.StoreChain(t.Context(), GroupRank{}, 0, nil, netproto.NewHashes(honest[:7*32], 32)))
	require.NoError(t, service.Evict(t.Context(), GroupRank{}, netproto.NewHashes(honest[4*32:5*32], 32)))
	mixed := append(bytes.Clone(other[:7*32]), honest[7*32:]...)
	require.NoError(t, service.StoreChain(t.Context(), GroupRank{}, 0, nil, netproto.NewHashes(mixed, 32)))
	for range 3 {
		require.EqualValues(t, 64, ask(honest), "a store that lies does not change what honest lookups are told")
	}
	require.EqualValues(t, 128, ask(mixed), "a lookup that lies is told the truth about its hashes")
	require.EqualValues(t, 128, ask(honest), "both together")
	require.NoError(t, service.Evict(t.Context(), GroupRank{}, netproto.NewHashes(honest[7*32:], 32)))
	require.NoError(t, service.StoreChain(t.Context(), GroupRank{}, 7, honest[6*32:7*32], netproto.NewHashes(honest[7*32:], 32)))
	require.EqualValues(t, 64, ask(honest))
	require.NoError(t, service.StoreChain(t.Context(), GroupRank{}, 4, honest[3*32:4*32], netproto.NewHashes(honest[4*32:5*32], 32)))
	require.EqualValues(t, 128, ask(honest))
}
