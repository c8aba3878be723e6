package bufpool

import (
	"slices"

	"github.com/valyala/bytebufferpool"
)

// maxPooled is the largest buffer, in bytes of capacity, that goes back into the pool. 1
// MiB is a request of 32,768 hashes of 32 bytes, far above what is usual; a message may
// have 64 MiB, and if arrays of that size were kept, a burst of a few such messages would
// hold gigabytes until the second garbage collection after it. For a request that large,
// one allocation is no cost worth saving.
const maxPooled = 1 << 20

// buffers is a pool of our own and not the shared one of bytebufferpool, as that package
// learns from what comes back how large its next buffers should be, and other users of it
// in this process have other sizes.
var buffers bytebufferpool.Pool

// Buffer is a byte buffer on loan from the pool. It is used like any slice:
//
//	b := bufpool.Get()
//	b.B = binary.BigEndian.AppendUint32(b.B, tokens)
//	conn.Write(b.B)
//	b.Release()
//
// The package documentation says who owns it and for how long.
type Buffer struct {
	// B is the content. Its owner may append to it, reslice it, and replace it by another
	// slice that is his alone: Release takes what is there.
	B []byte

	// No further field: the type is converted from and to bytebufferpool.ByteBuffer, which
	// compiles only while both are alike.
}

// Get returns an empty buffer, which belongs to the caller until Release. The capacity of B
// can be anything, 0 included.
func Get() *Buffer {
	if Debug {
		return new(Buffer) // nothing is ever lent twice, see Release
	}
	return (*Buffer)(buffers.Get())
}

// Release gives the buffer back. Neither b, nor b.B, nor any other slice of the same array
// may be used after it. In debug builds the array is overwritten up to its capacity, and a
// second call panics.
func (b *Buffer) Release() {
	if Debug {
		releasedBuffers.add(b)
		poisonBytes(b.B[:cap(b.B)])
		return
	}
	if cap(b.B) > maxPooled {
		return
	}
	buffers.Put((*bytebufferpool.ByteBuffer)(b))
}

// Reset empties the buffer and keeps its capacity.
func (b *Buffer) Reset() { b.B = b.B[:0] }

// Grow makes room for n more bytes, so that the appends that write them do not move the
// array. It panics if n is negative.
func (b *Buffer) Grow(n int) { b.B = slices.Grow(b.B, n) }

// Write appends p, of which it keeps nothing. The error is always nil.
func (b *Buffer) Write(p []byte) (int, error) {
	b.B = append(b.B, p...)
	return len(p), nil
}

// WriteString appends s. The error is always nil.
func (b *Buffer) WriteString(s string) (int, error) {
	b.B = append(b.B, s...)
	return len(s), nil
}

// WriteByte appends c. The error is always nil.
func (b *Buffer) WriteByte(c byte) error {
	b.B = append(b.B, c)
	return nil
}
