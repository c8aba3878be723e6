package bufpool

import (
	"bytes"
	"io"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/valyala/bytebufferpool"
)

var (
	_ io.Writer       = (*Buffer)(nil)
	_ io.StringWriter = (*Buffer)(nil)
	_ io.ByteWriter   = (*Buffer)(nil)
)

// freshPool makes the pool forget which sizes it has seen. After some ten thousand releases
// it would not keep what is unusually large among them, and a test that is repeated often
// would depend on the others.
func freshPool() { buffers = bytebufferpool.Pool{} }

func TestBufferAppends(t *testing.T) {
	b := Get()
	defer b.Release()
	require.Empty(t, b.B)

	b.B = append(b.B, "one "...)
	n, err := b.Write([]byte("two "))
	require.NoError(t, err)
	require.Equal(t, 4, n)
	n, err = b.WriteString("three")
	require.NoError(t, err)
	require.Equal(t, 5, n)
	require.NoError(t, b.WriteByte('.'))
	require.Equal(t, "one two three.", string(b.B))

	before := cap(b.B)
	b.Reset()
	require.Empty(t, b.B)
	require.Equal(t, before, cap(b.B), "Reset keeps the array")
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

// TestGetIsEmpty checks that no content comes along with a used buffer.
func TestGetIsEmpty(t *testing.T) {
	for range 100 {
		b := Get()
		require.Empty(t, b.B)
		b.B = append(b.B, "left behind"...)
		b.Release()
	}
}

// TestLargeBuffersAreNotKept releases buffers around the limit and looks which of them come
// back.
func TestLargeBuffersAreNotKept(t *testing.T) {
	if Debug {
		t.Skip("debug builds keep nothing")
	}
	freshPool()
	// sees says whether a buffer of this capacity is ever lent again. The pool promises
	// nothing, so one loan that does is enough.
	sees := func(capacity int) bool {
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
	require.True(t, sees(maxPooled))
	require.False(t, sees(maxPooled+1))
}

// TestBufferOwners lends to many goroutines at once, each of which must find in the end
// what it wrote.
func TestBufferOwners(t *testing.T) {
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
					t.Errorf("goroutine %d: somebody else wrote to the buffer", id)
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
		t.Skip("debug builds keep nothing")
	}
	freshPool()
	content := make([]byte, 3000)
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		b := Get()
		b.B = append(b.B, content...)
		b.Release()
	}))
}

func BenchmarkBuffer(b *testing.B) {
	content := make([]byte, 64)
	b.ReportAllocs()
	for b.Loop() {
		buf := Get()
		buf.B = append(buf.B, content...)
		buf.Release()
	}
}
