package events

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/tinylib/msgp/msgp"
)

const (
	benchBlocks = 64 // of one event
	benchTokens = 16 // of one block
)

// benchBatches encodes n batches in vLLM's form with maps, to be applied over and over. Batch i
// stores one event of blocks. If evict is set it also removes those of batch i-n/2, one event for
// each, so that n/2 batches are held; otherwise batch 0 first clears all.
func benchBatches(n int, evict bool, seed uint64) [][]byte {
	random := rand.New(rand.NewPCG(seed, 1))
	hashes := make([]uint64, n*benchBlocks)
	for i := range hashes {
		hashes[i] = random.Uint64()
	}
	batches := make([][]byte, n)
	for i := range batches {
		clearFirst := !evict && i == 0
		var gone []uint64
		if evict {
			from := (i + n/2) % n * benchBlocks
			gone = hashes[from : from+benchBlocks]
		}
		batches[i] = appendBenchBatch(nil, random, hashes[i*benchBlocks:(i+1)*benchBlocks], gone, clearFirst)
	}
	return batches
}

func appendBenchBatch(b []byte, random *rand.Rand, stored, removed []uint64, clearFirst bool) []byte {
	b = msgp.AppendArrayHeader(b, 3)
	b = msgp.AppendFloat64(b, 1.76e9+random.Float64())
	events := 1 + len(removed)
	if clearFirst {
		events++
	}
	b = msgp.AppendArrayHeader(b, uint32(events))
	if clearFirst {
		b = msgp.AppendMapHeader(b, 1)
		b = msgp.AppendString(msgp.AppendString(b, "type"), "AllBlocksCleared")
	}
	for _, hash := range removed {
		b = msgp.AppendMapHeader(b, 4)
		b = msgp.AppendString(msgp.AppendString(b, "type"), "BlockRemoved")
		b = msgp.AppendArrayHeader(msgp.AppendString(b, "block_hashes"), 1)
		b = msgp.AppendUint64(b, hash)
		b = msgp.AppendString(msgp.AppendString(b, "medium"), "GPU")
		b = msgp.AppendInt(msgp.AppendString(b, "group_idx"), 0)
	}
	next := 0
	b = appendBenchStored(b, random, func(b []byte) []byte {
		if next == len(stored) {
			return msgp.AppendUint64(b, random.Uint64()) // the parent
		}
		next++
		return msgp.AppendUint64(b, stored[next-1])
	})
	return msgp.AppendInt(b, 0)
}

// appendBenchStored appends an event that stores benchBlocks blocks, as vLLM 0.33 encodes it. appendHash
// is called for each, and then for the parent.
func appendBenchStored(b []byte, random *rand.Rand, appendHash func([]byte) []byte) []byte {
	b = msgp.AppendMapHeader(b, 9)
	b = msgp.AppendString(msgp.AppendString(b, "type"), "BlockStored")
	b = msgp.AppendArrayHeader(msgp.AppendString(b, "block_hashes"), benchBlocks)
	for range benchBlocks {
		b = appendHash(b)
	}
	b = appendHash(msgp.AppendString(b, "parent_block_hash"))
	b = msgp.AppendArrayHeader(msgp.AppendString(b, "token_ids"), benchBlocks*benchTokens)
	for range benchBlocks * benchTokens {
		b = msgp.AppendUint32(b, random.Uint32N(150_000))
	}
	b = msgp.AppendInt(msgp.AppendString(b, "block_size"), benchTokens)
	b = msgp.AppendNil(msgp.AppendString(b, "lora_id"))
	b = msgp.AppendString(msgp.AppendString(b, "medium"), "GPU")
	b = msgp.AppendNil(msgp.AppendString(b, "lora_name"))
	return msgp.AppendInt(msgp.AppendString(b, "group_idx"), 0)
}

// BenchmarkApply measures how many blocks a second go through the queue, the decoder, the tracker
// and the applier: one goroutine of each source copies payloads into the queue, as the reader does, and
// another applies them. blocks/s counts the blocks that were stored. With evictions as many were
// removed.
func BenchmarkApply(b *testing.B) {
	const batches = 8192
	for _, sources := range []int{1, 2} {
		for _, evict := range []bool{false, true} {
			b.Run(fmt.Sprintf("sources=%d/evictions=%t", sources, evict), func(b *testing.B) {
				payloads := make([][][]byte, sources)
				for i := range payloads {
					payloads[i] = benchBatches(batches, evict, uint64(i))
				}
				b.ResetTimer()
				var running sync.WaitGroup
				for _, p := range payloads {
					running.Go(func() { benchSource(b, p) })
				}
				running.Wait()
				b.ReportMetric(float64(sources)*float64(b.N)*benchBlocks/b.Elapsed().Seconds(), "blocks/s")
			})
		}
	}
}

// noHolder holds nothing, so that the benchmarks measure what is in front of a Holder.
type noHolder struct{}

func (noHolder) Store(*Blocks, []bool) error { return nil }
func (noHolder) Remove(*Blocks) error        { return nil }
func (noHolder) Clear()                      {}
func (noHolder) SetStale(bool)               {}

// benchSource sends and applies b.N batches.
func benchSource(b *testing.B, payloads [][]byte) {
	queue := newLiveQueue()
	t := newTracker(noHolder{}, &Config{MaxBlocks: DefaultMaxBlocks})
	t.connected()
	var reader sync.WaitGroup
	reader.Go(func() {
		defer close(queue.batches)
		for seq := range b.N {
			_ = queue.send(context.Background(), uint64(seq), payloads[seq%len(payloads)])
		}
	})
	for batch := range queue.batches {
		if _, err := t.live(batch.seq, batch.payload.B, false); err != nil {
			b.Error(err)
			break
		}
		queue.free(batch)
	}
	queue.drain()
	reader.Wait()
	if t.stats.Lost > 0 {
		b.Error("lost batches: ", t.reason)
	}
}
