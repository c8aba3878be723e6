// Package kept is a queue of bytes that a connection has received and that are served later.
package kept

import (
	"sync"
	"sync/atomic"
)

// Bytes is a queue of bytes in chunks. Its zero value is empty. It belongs to one event loop; other goroutines may call
// Size.
type Bytes struct {
	chunks []timedChunk
	from   int          // the bytes begin in the first chunk
	number atomic.Int64 // of bytes
	space  int          // bytes that the chunks have
}

// timedChunk is a part of what is kept. Its first bytes were read at a time in monotime, the others soon after.
type timedChunk struct {
	bytes  []byte
	readAt int64
}

// largeChunks holds the largest chunks. Few bytes have a small one, at least of minChunk bytes.
var largeChunks = sync.Pool{New: func() any { return new([largeChunk]byte) }}

// Sizes of chunks in bytes. An event loop reads as much as a large one at a time.
const minChunk, largeChunk = 1 << 10, 32 << 10

// Size returns the number of bytes.
func (k *Bytes) Size() int { return int(k.number.Load()) }

// Append adds bytes at the end, which were read at a time in monotime.
func (k *Bytes) Append(p []byte, readAt int64) {
	for k.number.Add(int64(len(p))); len(p) > 0; {
		last := len(k.chunks) - 1
		if last < 0 || len(k.chunks[last].bytes) == cap(k.chunks[last].bytes) {
			k.addChunk(len(p), readAt)
			last++
		}
		chunk := k.chunks[last].bytes
		n := copy(chunk[len(chunk):cap(chunk)], p)
		k.chunks[last].bytes = chunk[:len(chunk)+n]
		p = p[n:]
	}
}

// addChunk adds an empty chunk, for n bytes if these are few.
func (k *Bytes) addChunk(n int, readAt int64) {
	var chunk []byte
	if n = max(n, minChunk); n <= largeChunk/2 {
		chunk = make([]byte, 0, n)
	} else {
		chunk = largeChunks.Get().(*[largeChunk]byte)[:0]
	}
	k.chunks = append(k.chunks, timedChunk{chunk, readAt})
	k.space += cap(chunk)
}

// Front returns the first bytes, at least one if there are any, and when they were read. They are borrowed until Drop
// or Release.
func (k *Bytes) Front() (p []byte, readAt int64) {
	if len(k.chunks) == 0 {
		return nil, 0
	}
	return k.chunks[0].bytes[k.from:], k.chunks[0].readAt
}

// Drop removes n of the front bytes.
func (k *Bytes) Drop(n int) {
	k.from += n
	if k.number.Add(-int64(n)) == 0 {
		k.Release()
	} else if k.from == len(k.chunks[0].bytes) {
		k.space -= cap(k.chunks[0].bytes)
		recycle(k.chunks[0].bytes)
		k.chunks, k.from = k.chunks[1:], 0
	}
}

// recycle puts a chunk into the pool if it is a large one.
func recycle(chunk []byte) {
	if cap(chunk) == largeChunk {
		largeChunks.Put((*[largeChunk]byte)(chunk[:largeChunk]))
	}
}

// Release removes all bytes.
func (k *Bytes) Release() {
	for _, chunk := range k.chunks {
		clear(chunk.bytes) // there may be a token in it
		recycle(chunk.bytes)
	}
	k.Forget()
}

// Forget removes all bytes, which somebody may still read.
func (k *Bytes) Forget() {
	k.chunks, k.from, k.space = nil, 0, 0
	k.number.Store(0)
}

// Held returns the bytes of memory that the queue holds.
func (k *Bytes) Held() int { return k.space }
