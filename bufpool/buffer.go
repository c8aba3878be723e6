package bufpool

import (
	"slices"

	"github.com/valyala/bytebufferpool"
)

// maxPooled is the largest capacity, in bytes, that Release puts back into the pool. 1 MiB
// holds 32,768 hashes of 32 bytes, far above a usual request. A message may have 64 MiB: if
// such arrays were pooled, a burst of them would hold gigabytes until the second garbage
// collection. A few larger arrays are kept all the same, see GetFor.
const maxPooled = 1 << 20

// bufferPool is this package's own pool. bytebufferpool also has a shared one, but it sizes
// new buffers by what is released, and its other users in the process have other sizes.
var bufferPool bytebufferpool.Pool

// Buffer is a byte buffer from the pool. Use B like any slice:
//
//	b := bufpool.Get()
//	b.B = binary.BigEndian.AppendUint32(b.B, tokens)
//	conn.Write(b.B)
//	b.Release()
//
// The package documentation has the rules of ownership.
type Buffer struct {
	// B is the content. The owner may append to it, reslice it, or replace it by another
	// slice that nothing else uses: Release pools whatever array B has then.
	B []byte

	// No other field: Buffer is converted from and to bytebufferpool.ByteBuffer, which
	// compiles only if both have the same fields.
}

// Get returns an empty buffer, which belongs to the caller until Release. B may have any
// capacity, 0 included.
func Get() *Buffer {
	if Debug {
		return new(Buffer) // released memory is never reused, see Release
	}
	return (*Buffer)(bufferPool.Get())
}

// Release ends the ownership of b. Afterwards neither b, nor b.B, nor any other slice of
// the same array may be used. In debug builds it overwrites the array up to its capacity,
// and panics if b is already released.
func (b *Buffer) Release() {
	if Debug {
		releasedBuffers.record(b)
		poisonBytes(b.B[:cap(b.B)])
		return
	}
	if cap(b.B) > maxPooled {
		keep(b.B)
		return
	}
	bufferPool.Put((*bytebufferpool.ByteBuffer)(b))
}

// Grow ensures capacity for n more bytes, so that appends of up to n bytes do not move the
// array. It panics if n is negative.
func (b *Buffer) Grow(n int) { b.B = slices.Grow(b.B, n) }
