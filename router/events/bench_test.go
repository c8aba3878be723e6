package events

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/tinylib/msgp/msgp"
)

// benchBlocks is how many blocks of 16 tokens a batch of a benchmark stores.
const benchBlocks = 64

// benchBatch encodes a batch as vLLM does: an event that stores blocks, after one for each that is removed.
func benchBatch(random *rand.Rand, digests bool, stored, removed []uint64) []byte {
	var events simEvents
	for _, hash := range removed {
		events.event("BlockRemoved", hashesField(hash), mediumField("GPU"), groupField(0))
	}
	hashes := hashesField(stored...)
	if digests {
		hashes = func(b []byte) []byte {
			b = msgp.AppendArrayHeader(msgp.AppendString(b, "block_hashes"), uint32(len(stored)))
			for _, hash := range stored {
				b = msgp.AppendBytes(b, append(binary.BigEndian.AppendUint64(nil, hash), make([]byte, 24)...))
			}
			return b
		}
	}
	tokens := func(b []byte) []byte {
		b = msgp.AppendArrayHeader(msgp.AppendString(b, "token_ids"), uint32(16*len(stored)))
		for range 16 * len(stored) {
			b = msgp.AppendUint32(b, random.Uint32N(150_000))
		}
		return b
	}
	events.event("BlockStored", hashes, parentField(false), tokens, mediumField("GPU"), groupField(0))
	return events.batchAt(random.Float64())
}

// benchBatches encodes n batches, to be applied over and over. Batch i also removes the blocks of batch i-n/2.
func benchBatches(n int, digests bool) [][]byte {
	random := rand.New(rand.NewPCG(1, 2))
	hashes := make([]uint64, n*benchBlocks)
	for i := range hashes {
		hashes[i] = random.Uint64()
	}
	batches := make([][]byte, n)
	for i := range batches {
		from, gone := i*benchBlocks, (i+n/2)%n*benchBlocks
		batches[i] = benchBatch(random, digests, hashes[from:from+benchBlocks], hashes[gone:gone+benchBlocks])
	}
	return batches
}

func BenchmarkDecode(b *testing.B) {
	for _, digests := range []bool{false, true} {
		b.Run(fmt.Sprintf("digests=%t", digests), func(b *testing.B) {
			payload := benchBatches(2, digests)[0]
			var d Decoder
			b.SetBytes(int64(len(payload)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := d.Decode(payload, func(*Event) error { return nil }); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// noHolder holds nothing, so that the benchmark measures what is in front of a Holder.
type noHolder struct{}

func (noHolder) Store(*Blocks, []bool) error           { return nil }
func (noHolder) Remove(*Blocks) error                  { return nil }
func (noHolder) ClearTier(*Blocks, func() error) error { return nil }
func (noHolder) Clear()                                {}
func (noHolder) Dropped() int64                        { return 0 }
func (noHolder) SetStale(bool)                         {}
func (noHolder) Len() int                              { return 0 }

// BenchmarkApply measures how many blocks a second go through the decoder, the tracker and the applier. blocks/s counts
// the blocks that were stored. As many were removed.
func BenchmarkApply(b *testing.B) {
	payloads := benchBatches(8192, false)
	t := newTracker(noHolder{}, &Config{})
	t.connected()
	b.ResetTimer()
	for seq := range b.N {
		if _, err := t.live(uint64(seq), payloads[seq%len(payloads)], false); err != nil {
			b.Error(err)
		}
	}
	b.ReportMetric(float64(b.N)*benchBlocks/b.Elapsed().Seconds(), "blocks/s")
}
