package bufpool

import (
	"bytes"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/valyala/bytebufferpool"
)

// resetBufferPool replaces the pool by one without size statistics. After 42,000 releases the
// old pool drops unusually large buffers, so a test run with -count would depend on others.
func resetBufferPool() { bufferPool = bytebufferpool.Pool{} }

func TestBufferAppends(t *testing.T) {
	b := Get()
	defer b.Release()
	require.Empty(t, b.B)

	b.B = append(b.B, "one "...)
	b.B = append(b.B, "two"...)
	require.Equal(t, "one two", string(b.B))
}

func TestBufferGrow(t *testing.T) {
	b := Get()
	defer b.Release()
	b.B = append(b.B, "content"...)
	b.Grow(5000)
	require.Equal(t, "content", string(b.B))
	require.GreaterOrEqual(t, cap(b.B)-len(b.B), 5000)
	first := &b.B[0]
	b.B = append(b.B, make([]byte, 5000)...)
	require.Same(t, first, &b.B[0], "the array has not moved")
	require.Panics(t, func() { b.Grow(-1) })
}

// TestGetIsEmpty checks that Get hides the content of a reused buffer.
func TestGetIsEmpty(t *testing.T) {
	for range 100 {
		b := Get()
		require.Empty(t, b.B)
		b.B = append(b.B, "left behind"...)
		b.Release()
	}
}

// TestLargeBuffersAreNotPooled releases buffers around maxPooled and checks which are reused.
func TestLargeBuffersAreNotPooled(t *testing.T) {
	if Debug {
		t.Skip("debug builds pool nothing")
	}
	resetBufferPool()
	// reuses reports whether a released buffer of this capacity is ever returned by Get. The
	// pool may drop any buffer, so one reuse in many tries is enough.
	reuses := func(capacity int) bool {
		for range 100 {
			b := Get()
			b.B = make([]byte, 1, capacity)
			first := &b.B[0]
			b.Release()
			again := Get()
			if cap(again.B) == capacity && &again.B[:1][0] == first {
				return true
			}
		}
		return false
	}
	require.True(t, reuses(maxPooled))
	require.False(t, reuses(maxPooled+1))
}

// TestBuffersAreNotShared runs many goroutines, each of which must read what it wrote.
func TestBuffersAreNotShared(t *testing.T) {
	var wg sync.WaitGroup
	for id := range 8 {
		wg.Go(func() {
			for i := range 500 {
				b, other := Get(), Get()
				for range 1 + i%40 {
					b.B = append(b.B, bytes.Repeat([]byte{byte(id)}, 10)...)
					other.B = append(other.B, bytes.Repeat([]byte{byte(id + 100)}, 10)...)
				}
				if bytes.Count(b.B, []byte{byte(id)}) != len(b.B) || bytes.Count(other.B, []byte{byte(id + 100)}) != len(other.B) {
					t.Errorf("goroutine %d: another goroutine wrote to the buffer", id)
				}
				b.Release()
				other.Release()
			}
		})
	}
	wg.Wait()
}

func TestBufferDoesNotAllocate(t *testing.T) {
	if Debug {
		t.Skip("debug builds pool nothing")
	}
	resetBufferPool()
	content := make([]byte, 3000)
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		b := Get()
		b.B = append(b.B, content...)
		b.Release()
	}))
}
