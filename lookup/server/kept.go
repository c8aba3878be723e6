package server

import "sync"

// keptBytes is a queue of bytes in chunks. It belongs to one event loop.
type keptBytes struct {
	chunks [][]byte
	from   int // the bytes begin in the first chunk
	size   int
	space  int // bytes that the chunks have
}

// keptChunks holds the largest chunks. Few bytes have a small one, at least of minChunk bytes.
var keptChunks = sync.Pool{New: func() any { return new([readBuffer]byte) }}

const minChunk = 1 << 10

// append adds bytes at the end.
func (k *keptBytes) append(p []byte) {
	for k.size += len(p); len(p) > 0; {
		last := len(k.chunks) - 1
		if last < 0 || len(k.chunks[last]) == cap(k.chunks[last]) {
			k.addChunk(len(p))
			last++
		}
		chunk := k.chunks[last]
		n := copy(chunk[len(chunk):cap(chunk)], p)
		k.chunks[last] = chunk[:len(chunk)+n]
		p = p[n:]
	}
}

// addChunk adds an empty chunk, for n bytes if these are few.
func (k *keptBytes) addChunk(n int) {
	var chunk []byte
	if n = max(n, minChunk); n <= readBuffer/2 {
		chunk = make([]byte, 0, n)
	} else {
		chunk = keptChunks.Get().(*[readBuffer]byte)[:0]
	}
	k.chunks = append(k.chunks, chunk)
	k.space += cap(chunk)
}

// front returns the first bytes, at least one if there are any. They are borrowed until drop or release.
func (k *keptBytes) front() []byte {
	if len(k.chunks) == 0 {
		return nil
	}
	return k.chunks[0][k.from:]
}

// drop removes n of the front bytes.
func (k *keptBytes) drop(n int) {
	k.size -= n
	if k.from += n; k.size == 0 {
		k.release()
	} else if k.from == len(k.chunks[0]) {
		k.space -= cap(k.chunks[0])
		recycle(k.chunks[0])
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
		clear(chunk) // there may be a token in it
		recycle(chunk)
	}
	*k = keptBytes{}
}

// held returns the bytes of memory that the queue holds.
func (k *keptBytes) held() int { return k.space }
