package simd

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// naiveMatchTags is the definition of MatchTags.
func naiveMatchTags(buckets []*[BucketTags]uint16, tags []uint16) []uint16 {
	masks := make([]uint16, len(tags))
	for i, tag := range tags {
		for k, t := range buckets[i] {
			if t == tag {
				masks[i] |= 1 << k
			}
		}
	}
	return masks
}

func TestMatchTagsExamples(t *testing.T) {
	bucket := [BucketTags]uint16{1, 2, 3, 4, 5, 6, 7, 8, 9, 0xFFFF}
	twins := [BucketTags]uint16{0, 0, 0x100, 1, 0, 0x8000, 0, 0, 0, 0}
	forEachKernel(t, func(t *testing.T) {
		for _, tt := range []struct {
			bucket *[BucketTags]uint16
			tag    uint16
			want   uint16
		}{
			{&bucket, 1, 1 << 0},
			{&bucket, 5, 1 << 4},
			{&bucket, 8, 1 << 7},
			{&bucket, 9, 1 << 8},
			{&bucket, 0xFFFF, 1 << 9},
			{&bucket, 0, 0},
			{&bucket, 0x0101, 0},
			{&twins, 0, 0b11_1101_0011},
			{&twins, 0x8000, 1 << 5},
			{&twins, 1, 1 << 3},
		} {
			masks := []uint16{0xABCD}
			MatchTags(masks, []*[BucketTags]uint16{tt.bucket}, []uint16{tt.tag})
			require.Equal(t, tt.want, masks[0], "tag %d", tt.tag)
		}

		// Without tags nothing is read or written. Masks without a tag do not change.
		MatchTags(nil, nil, nil)
		masks := []uint16{0xABCD, 0xABCD}
		MatchTags(masks, []*[BucketTags]uint16{&bucket, nil}, []uint16{2})
		require.Equal(t, []uint16{1 << 1, 0xABCD}, masks)

		require.Panics(t, func() { MatchTags(masks[:0:0], []*[BucketTags]uint16{&bucket}, []uint16{2}) })
		require.Panics(t, func() { MatchTags(masks, nil, []uint16{2}) })
		require.Panics(t, func() { MatchTags(masks, []*[BucketTags]uint16{nil}, []uint16{2}) })
	})
}

// TestMatchTagsRandom compares with the definition in batches of every size up to 70, on
// few different tags, at addresses of every alignment that a bucket can have.
func TestMatchTagsRandom(t *testing.T) {
	forEachKernel(t, func(t *testing.T) {
		rng, _ := newTestRand(t)
		for n := 1; n <= 70; n++ {
			for range 20 {
				values := []uint16{0, 1, 0x100, 0x7FFF, 0x8000, 0xFFFF, uint16(rng.Uint32()), uint16(rng.Uint32())}
				memory := make([]uint16, n*16)
				buckets, tags := make([]*[BucketTags]uint16, n), make([]uint16, n)
				for i := range n {
					buckets[i] = (*[BucketTags]uint16)(memory[i*16+rng.IntN(7):])
					tags[i] = values[rng.IntN(len(values))]
				}
				for i := range memory {
					memory[i] = values[rng.IntN(len(values))]
				}
				masks := make([]uint16, n)
				MatchTags(masks, buckets, tags)
				require.Equal(t, naiveMatchTags(buckets, tags), masks)
			}
		}
	})
}

func TestMatchTagsDoesNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	forEachKernel(t, func(t *testing.T) {
		var bucket [BucketTags]uint16
		require.Zero(t, testing.AllocsPerRun(100, func() {
			masks, tags := [3]uint16{}, [3]uint16{}
			buckets := [3]*[BucketTags]uint16{&bucket, &bucket, &bucket}
			MatchTags(masks[:], buckets[:], tags[:])
			benchSink = int(masks[0])
		}))
	})
}

// FuzzMatchTags compares every kernel with the definition. The fuzzer's bytes are tags, each
// with its bucket.
func FuzzMatchTags(f *testing.F) {
	f.Add([]byte("aaaabbaaccddaaeeffaagg"))
	f.Add(make([]byte, 2*(BucketTags+1)*3))
	f.Fuzz(func(t *testing.T, data []byte) {
		var buckets []*[BucketTags]uint16
		var tags []uint16
		for ; len(data) >= 2*(BucketTags+1); data = data[2*(BucketTags+1):] {
			bucket := new([BucketTags]uint16)
			for k := range bucket {
				bucket[k] = binary.LittleEndian.Uint16(data[2+2*k:])
			}
			buckets, tags = append(buckets, bucket), append(tags, binary.LittleEndian.Uint16(data))
		}
		want := naiveMatchTags(buckets, tags)
		forEachKernelInline(t, func(kernel string) {
			masks := make([]uint16, len(tags))
			MatchTags(masks, buckets, tags)
			require.Equal(t, want, masks, kernel)
		})
	})
}

// BenchmarkMatchTags probes random buckets, one cache line each, in tables of several sizes,
// in batches of 64. The time is that of one key. It includes the choice of its bucket and
// the read of a slot after a match.
func BenchmarkMatchTags(b *testing.B) {
	type bucket struct {
		tags [BucketTags]uint16
		_    uint32
		slot [BucketTags]uint32
	}
	const batch = 64
	forEachKernel(b, func(b *testing.B) {
		for _, mb := range []int{1, 16, 160} {
			b.Run(fmt.Sprintf("table=%dMiB", mb), func(b *testing.B) {
				table := make([]bucket, mb<<20/64)
				source := rand.New(rand.NewPCG(1, 2))
				for i := range table {
					for k := range BucketTags {
						table[i].tags[k] = uint16(source.Uint32())
					}
				}
				var masks, tags [batch]uint16
				var buckets [batch]*[BucketTags]uint16
				var at [batch]int
				state, sum := uint64(1), 0
				b.ResetTimer()
				for range (b.N + batch - 1) / batch {
					for i := range batch {
						state = state*6364136223846793005 + 1442695040888963407
						index, fraction := bits.Mul64(state, uint64(len(table)))
						at[i], buckets[i], tags[i] = int(index), &table[index].tags, uint16(fraction>>48)
					}
					MatchTags(masks[:], buckets[:], tags[:])
					for i, mask := range masks {
						for ; mask != 0; mask &= mask - 1 {
							sum += int(table[at[i]].slot[bits.TrailingZeros16(mask)])
						}
					}
				}
				benchSink = sum
			})
		}
	})
}

func ExampleMatchTags() {
	bucket := [BucketTags]uint16{10, 20, 30, 20}
	masks := make([]uint16, 2)
	MatchTags(masks, []*[BucketTags]uint16{&bucket, &bucket}, []uint16{20, 40})
	fmt.Printf("%04b %04b\n", masks[0], masks[1])
	// Output: 1010 0000
}
