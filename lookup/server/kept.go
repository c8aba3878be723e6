package server

import (
	"sync"
	"sync/atomic"
)

// keptBytes is a queue of bytes in chunks. It belongs to one event loop; other goroutines may call size.
type keptBytes struct {
	chunks []keptChunk
	from   int          // the bytes begin in the first chunk
	number atomic.Int64 // of bytes
	space  int          // bytes that the chunks have
}

// keptChunk is a part of what is kept. Its first bytes were read at a time in monotime, the others soon after.
type keptChunk struct {
	bytes  []byte
	readAt int64
}

// keptChunks holds the largest chunks. Few bytes have a small one, at least of minChunk bytes.
var keptChunks = sync.Pool{New: func() any { return new([readBuffer]byte) }}

const minChunk = 1 << 10

// size returns the number of bytes.
func (k *keptBytes) size() int { return int(k.number.Load()) }

// append adds bytes at the end, which were read at a time in monotime.
func (k *keptBytes) append(p []byte, readAt int64) {
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
func (k *keptBytes) addChunk(n int, readAt int64) {
	var chunk []byte
	if n = max(n, minChunk); n <= readBuffer/2 {
		chunk = make([]byte, 0, n)
	} else {
		chunk = keptChunks.Get().(*[readBuffer]byte)[:0]
	}
	k.chunks = append(k.chunks, keptChunk{chunk, readAt})
	k.space += cap(chunk)
}

// front returns the first bytes, at least one if there are any, and when they were read. They are borrowed until drop
// or release.
func (k *keptBytes) front() (p []byte, readAt int64) {
	if len(k.chunks) == 0 {
		return nil, 0
	}
	return k.chunks[0].bytes[k.from:], k.chunks[0].readAt
}

// drop removes n of the front bytes.
func (k *keptBytes) drop(n int) {
	k.from += n
	if k.number.Add(-int64(n)) == 0 {
		k.release()
	} else if k.from == len(k.chunks[0].bytes) {
		k.space -= cap(k.chunks[0].bytes)
		recycle(k.chunks[0].bytes)
		k.chunks, k.from = k.chunks[1:], 0
	}
}

// recycle puts a chunk into the pool if it is a large one.
func recycle(chunk []byte) {
	if cap(chunk) == readBuffer {
		keptChunks.Put((*[readBuffer]byte)(chunk[:readBuffer]))
	}
}

// release removes all bytes.
func (k *keptBytes) release() {
	for _, chunk := range k.chunks {
		clear(chunk.bytes) // there may be a token in it
		recycle(chunk.bytes)
	}
	k.forget()
}

// forget removes all bytes, which somebody may still read.
func (k *keptBytes) forget() {
	k.chunks, k.from, k.space = nil, 0, 0
	k.number.Store(0)
}

// held returns the bytes of memory that the queue holds.
func (k *keptBytes) held() int { return k.space }
