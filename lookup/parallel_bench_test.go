package lookup

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
)

// BenchmarkLookupParallel looks up stored chains in as many goroutines as there are processors (-cpu 1,2,4…).
func BenchmarkLookupParallel(b *testing.B) {
	const entries = 1 << 18
	service, err := NewService(blocks16)
	require.NoError(b, err)
	hashes := make([]byte, entries*32)
	_, _ = rand.NewChaCha8([32]byte{}).Read(hashes)
	require.NoError(b, service.Store(context.Background(), coordinator.GroupRank{}, coordinator.NewHashes(hashes, 32)))
	for _, n := range []int{64, 8192} {
		b.Run(fmt.Sprintf("hashes=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			var goroutines atomic.Int64
			b.RunParallel(func(pb *testing.PB) {
				for i := int(goroutines.Add(1)) * 1009; pb.Next(); i++ { // each at places of its own
					chain := hashes[i%(entries/n)*n*32:][:n*32]
					hit, err := service.Lookup(context.Background(), int64(n*16), coordinator.NewHashes(chain, 32))
					if err != nil || hit.Tokens != int64(n*16) {
						b.Errorf("%d of %d tokens hit: %v", hit.Tokens, n*16, err)
						return
					}
				}
			})
		})
	}
}
