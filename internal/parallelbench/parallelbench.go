// Package parallelbench is the benchmark of lookups in parallel that the index and the service
// share.
package parallelbench

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"
)

// Subject is what is measured: an index of hashes of 32 bytes. Its functions are called from
// several goroutines at a time.
type Subject struct {
	// Store stores hashes as one chain.
	Store func(hashes []byte) error
	// NewLookup returns the function with which one goroutine looks up stored hashes. It fails if
	// one is not found.
	NewLookup func() (lookup func(hashes []byte) error)
}

const (
	entries = 1 << 18 // that are looked up
	// roomHashes is how many hashes of the writer the index holds beside them.
	roomHashes = 1 << 17
	// writerChain is the length of the writer's chains, and writerRate how many hashes it stores a
	// second. Each of them evicts one.
	writerChain = 256
	writerRate  = 100_000
	// MaxEntries is the bound of the index. The benchmark fills it.
	MaxEntries = entries + roomHashes
)

// Run makes lookups in as many goroutines as there are processors (-cpu 1,2,4…) and reports
// lookups a second. The hashes of a request are a chain as it was stored, or drawn from all
// hashes. With a writer, a goroutine stores further hashes meanwhile, and keys/s is how many.
func Run(b *testing.B, s Subject) {
	rng := rand.NewChaCha8([32]byte{})
	hashes := make([]byte, entries*32)
	_, _ = rng.Read(hashes)
	store := func(hashes []byte) {
		if err := s.Store(hashes); err != nil {
			b.Error(err)
		}
	}
	more := make([]byte, writerChain*32)
	for range roomHashes / writerChain { // they are evicted first
		_, _ = rng.Read(more)
		store(more)
	}
	store(hashes)
	random := make([]byte, 0, len(hashes))
	for _, i := range rand.New(rng).Perm(entries) {
		random = append(random, hashes[i*32:(i+1)*32]...)
	}
	for _, bc := range []struct {
		order  string
		hashes []byte
		n      int // hashes of a request
		writer bool
	}{
		{"chain", hashes, 64, false},
		{"chain", hashes, 64, true},
		{"chain", hashes, 8192, false},
		{"chain", hashes, 8192, true},
		{"random", random, 64, false}, // last: it leaves another order of use
	} {
		name := fmt.Sprintf("order=%s/hashes=%d", bc.order, bc.n)
		if bc.writer {
			name += "/writer"
		}
		b.Run(name, func(b *testing.B) {
			stop := func() int { return 0 }
			if bc.writer {
				stop = startWriter(store)
			}
			b.ReportAllocs()
			lookUp(b, s, bc.hashes, bc.n)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "lookups/s")
			b.StopTimer()
			if n := stop(); bc.writer {
				b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "keys/s")
			}
		})
	}
}

// lookUp makes the lookups, of n hashes each.
func lookUp(b *testing.B, s Subject, hashes []byte, n int) {
	var goroutines atomic.Int64
	b.RunParallel(func(pb *testing.PB) {
		lookup := s.NewLookup()
		for i := int(goroutines.Add(1)) * 1009; pb.Next(); i++ { // all in places of their own
			at := i % (entries / n) * n * 32
			if err := lookup(hashes[at : at+n*32]); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// startWriter starts a goroutine that stores chains of new hashes by the clock. stop ends it and
// returns how many hashes it has stored.
func startWriter(store func(hashes []byte)) (stop func() int) {
	ended, stored := make(chan struct{}), make(chan int)
	rng, hashes := rand.NewChaCha8([32]byte{1}), make([]byte, writerChain*32)
	go func() {
		n := 0
		for start := time.Now(); ; time.Sleep(time.Millisecond) {
			for due := int(time.Since(start).Seconds() * writerRate); n+writerChain <= due; n += writerChain {
				_, _ = rng.Read(hashes)
				store(hashes)
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
