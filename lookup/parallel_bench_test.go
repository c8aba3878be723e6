package lookup

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/netproto"
)

// BenchmarkLookupParallel makes lookups of stored hashes in as many goroutines as there
// are processors (-cpu 1,2,4…), among 262,144 hashes, and reports lookups a second. The
// hashes of a request are a chain as it was stored, or drawn from all hashes. The index is full.
// With a writer, a goroutine stores further hashes meanwhile, and keys/s is how many.
func BenchmarkLookupParallel(b *testing.B) {
	const entries = 1 << 18
	rng := rand.NewChaCha8([32]byte{})
	keys := make([]byte, entries*32)
	_, _ = rng.Read(keys)
	cfg := blocks16
	cfg.Memory.MaxEntries = entries + roomKeys
	service, err := NewService(cfg)
	require.NoError(b, err)
	storeNew := func(keys []byte) {
		if err := service.StoreChain(context.Background(), GroupRank{}, 0, nil, netproto.NewHashes(keys, 32)); err != nil {
			b.Error(err)
		}
	}
	more := make([]byte, writerChain*32)
	for range roomKeys / writerChain { // they are evicted first
		_, _ = rng.Read(more)
		storeNew(more)
	}
	storeNew(keys)
	random := make([]byte, 0, len(keys))
	for _, i := range rand.New(rng).Perm(entries) {
		random = append(random, keys[i*32:(i+1)*32]...)
	}
	for _, bc := range []struct {
		order  string
		keys   []byte
		n      int // hashes of a request
		writer bool
	}{
		{"chain", keys, 64, false},
		{"chain", keys, 64, true},
		{"chain", keys, 8192, false},
		{"chain", keys, 8192, true},
		{"random", random, 64, false}, // last: it leaves another order of use
	} {
		name := fmt.Sprintf("order=%s/hashes=%d", bc.order, bc.n)
		if bc.writer {
			name += "/writer"
		}
		b.Run(name, func(b *testing.B) {
			var goroutines atomic.Int64
			stop := func() int { return 0 }
			if bc.writer {
				stop = startWriter(storeNew)
			}
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
			b.StopTimer()
			if n := stop(); bc.writer {
				b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "keys/s")
			}
		})
	}
}

const (
	// roomKeys is how many keys of the writer the index holds beside those that are looked up.
	roomKeys = 1 << 17
	// writerChain is the length of the writer's chains, and writerRate how many keys it stores a
	// second. Each of them evicts one.
	writerChain = 256
	writerRate  = 100_000
)

// startWriter starts a goroutine that stores chains of new keys by the clock. stop ends it and
// returns how many keys it has stored.
func startWriter(store func(keys []byte)) (stop func() int) {
	ended, stored := make(chan struct{}), make(chan int)
	rng, keys := rand.NewChaCha8([32]byte{1}), make([]byte, writerChain*32)
	go func() {
		n := 0
		for start := time.Now(); ; time.Sleep(time.Millisecond) {
			for due := int(time.Since(start).Seconds() * writerRate); n+writerChain <= due; n += writerChain {
				_, _ = rng.Read(keys)
				store(keys)
			}
			select {
			case <-ended:
				stored <- n
				return
			default:
			}
		}
	}()
	return func() int {
		close(ended)
		return <-stored
	}
}
