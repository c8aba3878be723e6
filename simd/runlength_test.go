package simd

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// naiveRunLength16 is the definition of RunLength16.
func naiveRunLength16(classes []uint16) int {
	for i, class := range classes {
		if class != classes[0] {
			return i
		}
	}
	return len(classes)
}

// TestRunLength16Positions ends the run, by one bit, at every position of arrays of every
// length and at random alignments. The elements after it are sometimes the first one again.
func TestRunLength16Positions(t *testing.T) {
	const most = maxTestLen/2 + 16
	forEachKernel(t, func(t *testing.T) {
		rng, _ := newTestRand(t)
		require.Zero(t, RunLength16(nil))
		require.Zero(t, RunLength16([]uint16{}))
		whole := make([]uint16, most+16)
		for n := 1; n <= most; n++ {
			classes := whole[rng.IntN(16):][:n]
			first := uint16(rng.Uint32())
			for i := range classes {
				classes[i] = first
			}
			if got := RunLength16(classes); got != n {
				t.Fatalf("%d equal: got %d", n, got)
			}
			for at := n - 1; at >= 1; at-- {
				classes[at] ^= 1 << rng.IntN(16)
				if got := RunLength16(classes); got != at {
					t.Fatalf("length %d, other class at %d: got %d", n, at, got)
				}
				if rng.IntN(2) == 0 {
					classes[at] = first
				}
			}
		}
	})
}

func TestRunLength16DoesNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	forEachKernel(t, func(t *testing.T) {
		var classes [512]uint16
		require.Zero(t, testing.AllocsPerRun(100, func() { benchSink = RunLength16(classes[:]) }))
	})
}

// FuzzRunLength16 compares every kernel with the definition, on a run of the fuzzer's first
// element and then its other elements.
func FuzzRunLength16(f *testing.F) {
	f.Add([]byte{1, 0, 1, 0, 2, 0}, uint8(0))
	f.Add([]byte{1, 1, 1, 0}, uint8(200))
	f.Fuzz(func(t *testing.T, data []byte, run uint8) {
		var classes []uint16
		for ; len(data) >= 2; data = data[2:] {
			classes = append(classes, binary.NativeEndian.Uint16(data))
			for ; run > 0; run-- {
				classes = append(classes, classes[0])
			}
		}
		want := naiveRunLength16(classes)
		forEachKernelInline(t, func(kernel string) {
			if got := RunLength16(classes); got != want {
				t.Errorf("%s: got %d, want %d: %x", kernel, got, want, classes)
			}
		})
	})
}

// BenchmarkRunLength16 finds runs of several lengths at the start of a long array.
func BenchmarkRunLength16(b *testing.B) {
	forEachKernel(b, func(b *testing.B) {
		for _, run := range []int{1, 2, 3, 4, 6, 8, 16, 32, 64, 256, 2048, 8192} {
			b.Run(fmt.Sprintf("run=%d", run), func(b *testing.B) {
				classes := make([]uint16, 16384)
				classes[run] = 1
				for b.Loop() {
					benchSink = RunLength16(classes)
				}
			})
		}
	})
}

func ExampleRunLength16() {
	fmt.Println(RunLength16([]uint16{7, 7, 7, 9, 7}))
	// Output: 3
}
