package events

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/tinylib/msgp/msgp"
)

// benchmarkBatch returns a batch of events of 64 blocks with 16 token ids a block, as vLLM 0.33
// encodes them.
func benchmarkBatch(numEvents int, wholeDigests bool) []byte {
	random := rand.New(rand.NewPCG(1, 2))
	hash := func(b []byte) []byte {
		if !wholeDigests {
			return msgp.AppendUint64(b, random.Uint64()|1<<63)
		}
		digest := make([]byte, 0, 32)
		for range 4 {
			digest = binary.BigEndian.AppendUint64(digest, random.Uint64())
		}
		return msgp.AppendBytes(b, digest)
	}
	b := msgp.AppendArrayHeader(nil, 3)
	b = msgp.AppendFloat64(b, 1.7e9)
	b = msgp.AppendArrayHeader(b, uint32(numEvents))
	for range numEvents {
		b = appendBenchStored(b, random, hash)
	}
	return msgp.AppendInt(b, 0)
}

func BenchmarkDecode(b *testing.B) {
	for _, wholeDigests := range []bool{false, true} {
		b.Run(fmt.Sprintf("64-blocks-of-16/wholeDigests=%t", wholeDigests), func(b *testing.B) {
			const numEvents = 32
			payload := benchmarkBatch(numEvents, wholeDigests)
			var d Decoder
			blocks := 0
			b.SetBytes(int64(len(payload)))
			b.ReportAllocs()
			for b.Loop() {
				_, err := d.Decode(payload, func(e *Event) error {
					blocks += e.Hashes.Len()
					return nil
				})
				if err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(blocks), "ns/block")
		})
	}
}
