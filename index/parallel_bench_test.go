package index

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// BenchmarkProbeParallel makes lookups of stored keys in as many goroutines as there
// are processors (-cpu 1,2,4…), among 262,144 keys, and reports lookups a second. The
// keys of a request are a chain as it was stored, or drawn from all keys. The index is full.
// With a writer, a goroutine stores further keys meanwhile, and keys/s is how many.
func BenchmarkProbeParallel(b *testing.B) {
	const entries = 1 << 18
	rng := rand.NewChaCha8([32]byte{})
	keys := make([]byte, entries*32)
	_, _ = rng.Read(keys)
	x := mustNew(b, onePlace(entries+roomKeys))
	storeNew := func(keys []byte) {
		if err := storeChain(x, keys); err != nil {
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
		n      int // keys of a request
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
			b.RunParallel(func(pb *testing.PB) {
				var c Cursor
				var runs [64]Run
				for i := int(goroutines.Add(1)) * 1009; pb.Next(); i++ { // all in places of their own
					at := i % (entries / bc.n) * bc.n * 32
					request := bc.keys[at : at+bc.n*32]
					x.Begin(&c, 32)
					for len(request) > 0 {
						filled, covered, _ := x.Probe(&c, request, 1, runs[:], true)
						if filled != 1 || runs[0].Coverage == nil {
							b.Error("a stored key was not found")
							return
						}
						request = request[covered*32:]
					}
					x.End(&c)
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

const (
	singleEntries = 1 << 17
	singleChain   = 1024 // keys of a chain that is continued
)

// storeSingly stores keys of 32 bytes with one call each, in chains of so many keys of which
// some grow in turn.
func storeSingly(x *Index, keys []byte, chain, turns int) error {
	for block := chain * turns * 32; len(keys) > 0; keys = keys[min(block, len(keys)):] {
		for number := range chain {
			for i := number; i < min(block, len(keys))/32; i += chain {
				var w Writer
				w.Number(uint32(number))
				if number > 0 {
					w.Behind(keys[(i-1)*32 : i*32])
				}
				if err := x.Store(&w, 0, keys[i*32:(i+1)*32], 32); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// storeChains stores keys of 32 bytes with one call for each chain.
func storeChains(x *Index, keys []byte) error {
	for ; len(keys) > 0; keys = keys[singleChain*32:] {
		if err := storeChain(x, keys[:singleChain*32]); err != nil {
			return err
		}
	}
	return nil
}

// storeChain stores keys of 32 bytes as one chain.
func storeChain(x *Index, keys []byte) error {
	var w Writer
	w.Number(0)
	return x.Store(&w, 0, keys, 32)
}

// BenchmarkStoreSingle stores 131,072 keys, one a call, and reports stores a second and
// the memory that an entry then takes. Each key is a chain of its own, or continues one
// of 1,024 keys, of which one grows, or 64 in turn; or the chain is stored at once, for
// comparison. A full index holds as
// many other keys before, stored in the same way.
func BenchmarkStoreSingle(b *testing.B) {
	keys := make([]byte, 2*singleEntries*32)
	_, _ = rand.NewChaCha8([32]byte{}).Read(keys)
	for _, bc := range []struct {
		chain  string
		stores int // of all keys
		store  func(x *Index, keys []byte) error
	}{
		{"own", singleEntries, func(x *Index, keys []byte) error { return storeSingly(x, keys, 1, singleEntries) }},
		{"continued", singleEntries, func(x *Index, keys []byte) error { return storeSingly(x, keys, singleChain, 1) }},
		{"in-turn", singleEntries, func(x *Index, keys []byte) error { return storeSingly(x, keys, singleChain, 64) }},
		{"at-once", singleEntries / singleChain, storeChains},
	} {
		for _, full := range []bool{false, true} {
			b.Run(fmt.Sprintf("chain=%s/full=%t", bc.chain, full), func(b *testing.B) {
				var x *Index
				n := 0
				for ; b.Loop(); n++ {
					b.StopTimer()
					x = mustNew(b, onePlace(0))
					if full {
						x = mustNew(b, onePlace(singleEntries))
						require.NoError(b, bc.store(x, keys[singleEntries*32:]))
					}
					b.StartTimer()
					require.NoError(b, bc.store(x, keys[:singleEntries*32]))
				}
				b.ReportMetric(float64(n*bc.stores)/b.Elapsed().Seconds(), "stores/s")
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n*singleEntries), "ns/key")
				b.ReportMetric(float64(x.Stats().Bytes)/float64(x.Stats().Entries), "B/entry")
			})
		}
	}
}
