package index_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/hitline/hitline/index"
)

// BenchmarkHostile sets keys that a client might choose to make the index slow
// beside ordinary ones, 8,192 keys an operation. In each order of asking the
// hostile keys may take at most four times as long a hash as the random ones; one
// key repeated is to be read against random keys in scattered order.
func BenchmarkHostile(b *testing.B) {
	const entries, batch, hashLen = 1 << 18, 8192, 32
	random := make([]byte, 2*entries*hashLen)
	_, _ = rand.NewChaCha8([32]byte{}).Read(random)
	for _, tt := range []struct {
		name string
		keys []byte // those stored, then as many others
	}{
		{"random", random},
		{"equal-prefix", numbered(0, 2*entries, hashLen, hashLen-4, 0)},
		{"equal-suffix", numbered(0, 2*entries, hashLen, 0, 0)},
	} {
		stored, others := tt.keys[:entries*hashLen], tt.keys[entries*hashLen:]
		x := newIndex(b, 0, 0)
		storeKeys(b, x, stored, hashLen)
		lookUps := func(order, name string, keys []byte) {
			b.Run(fmt.Sprintf("lookup/order=%s/keys=%s", order, name), func(b *testing.B) {
				n := 0
				for b.Loop() {
					at := n * batch * hashLen % len(keys)
					lookUp(x, keys[at:at+batch*hashLen], hashLen)
					n++
				}
				perHash(b, n*batch)
			})
		}
		lookUps("chain", tt.name, stored)
		lookUps("scattered", tt.name, scattered(stored, hashLen))
		lookUps("absent", tt.name, others)
		if tt.name == "random" {
			lookUps("scattered", "one-repeated", bytes.Repeat(stored[:hashLen], batch))
			lookUps("scattered", "two-repeated", bytes.Repeat(stored[:2*hashLen], batch/2))
			lookUps("absent", "one-repeated", bytes.Repeat(others[:hashLen], batch))
		}
	}
	for _, tt := range []struct {
		name string
		keys []byte
	}{
		{"random", random[:entries*hashLen]},
		{"equal-prefix", numbered(0, entries, hashLen, hashLen-4, 0)},
		{"one-repeated", bytes.Repeat(random[:hashLen], batch)},
	} {
		b.Run("store/keys="+tt.name, func(b *testing.B) {
			var x *index.Index
			n := 0
			for b.Loop() {
				at := n * batch * hashLen % len(tt.keys)
				if n%(entries/batch) == 0 { // all of them new again
					x = newIndex(b, 0, 0)
				}
				storeKeys(b, x, tt.keys[at:at+batch*hashLen], hashLen)
				n++
			}
			perHash(b, n*batch)
		})
	}
}

// perHash reports the time of an operation on n keys.
func perHash(b *testing.B, n int) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/hash")
}

// scattered returns keys in random order.
func scattered(keys []byte, hashLen int) []byte {
	list := slices.Collect(slices.Chunk(keys, hashLen))
	rng := rand.New(rand.NewPCG(1, 1))
	rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return slices.Concat(list...)
}
