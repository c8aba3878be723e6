package lookup

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/netproto"
)

// BenchmarkLookupParallel makes lookups of stored hashes in as many goroutines as there
// are processors (-cpu 1,2,4…), among 262,144 hashes, and reports lookups a second. The
// hashes of a request are a chain as it was stored, or drawn from all hashes.
func BenchmarkLookupParallel(b *testing.B) {
	const entries = 1 << 18
	rng := rand.NewChaCha8([32]byte{})
	keys := make([]byte, entries*32)
	_, _ = rng.Read(keys)
	service, err := NewService(blocks16)
	require.NoError(b, err)
	require.NoError(b, service.Store(b.Context(), GroupRank{}, netproto.NewHashes(keys, 32)))
	random := make([]byte, 0, len(keys))
	for _, i := range rand.New(rng).Perm(entries) {
		random = append(random, keys[i*32:(i+1)*32]...)
	}
	for _, bc := range []struct {
		order string
		keys  []byte
		n     int // hashes of a request
	}{{"chain", keys, 64}, {"chain", keys, 8192}, {"random", random, 64}} {
		b.Run(fmt.Sprintf("order=%s/hashes=%d", bc.order, bc.n), func(b *testing.B) {
			var goroutines atomic.Int64
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for i := int(goroutines.Add(1)) * 1009; pb.Next(); i++ { // all in places of their own
					at := i % (entries / bc.n) * bc.n * 32
					hit, err := service.Lookup(b.Context(), int64(16*bc.n), netproto.NewHashes(bc.keys[at:at+bc.n*32], 32))
					if err != nil || hit.Tokens != int64(16*bc.n) {
						b.Errorf("%d of %d tokens hit: %v", hit.Tokens, 16*bc.n, err)
						return
					}
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "lookups/s")
		})
	}
}
