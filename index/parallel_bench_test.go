package index

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/parallelbench"
)

// BenchmarkProbeParallel makes lookups in parallel, see package parallelbench.
func BenchmarkProbeParallel(b *testing.B) {
	x := mustNew(b, onePlace(parallelbench.MaxEntries))
	parallelbench.Run(b, parallelbench.Subject{
		Store: func(keys []byte) error { return storeChain(x, keys) },
		NewLookup: func() func(keys []byte) error {
			var c Cursor
			var runs [64]Run
			return func(keys []byte) error {
				x.Begin(&c, 32)
				for len(keys) > 0 {
					filled, covered, _ := x.Probe(&c, keys, 1, runs[:], true)
					if filled != 1 || runs[0].Coverage == nil {
						return errors.New("a stored key was not found")
					}
					keys = keys[covered*32:]
				}
				x.End(&c)
				return nil
			}
		},
	})
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
				if err := x.Store(&w, []int{0}, keys[i*32:(i+1)*32], 32); err != nil {
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
	return x.Store(&w, []int{0}, keys, 32)
}

// BenchmarkStoreSingle stores 131,072 keys, one a call, and reports stores a second and
// the memory that an entry then takes. Each key is a chain of its own, or continues one
// of 1,024 keys, of which one grows, or 64 in turn; or the chain is stored at once, for
// comparison. A full index holds as many other keys before, stored in the same way.
func BenchmarkStoreSingle(b *testing.B) {
	keys := drawnKeys(0, 2*singleEntries)
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
