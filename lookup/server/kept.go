package server

import "sync"

// keptBytes is a queue of bytes in pooled chunks. It belongs to one event loop.
type keptBytes struct {
	chunks   []*keptChunk
	from, to int // the bytes begin in the first chunk, and end in the last one
	size     int
}

type keptChunk [readBuffer]byte

var keptChunks = sync.Pool{New: func() any { return new(keptChunk) }}

// append adds bytes at the end.
func (k *keptBytes) append(p []byte) {
	for k.size += len(p); len(p) > 0; {
		if len(k.chunks) == 0 || k.to == readBuffer {
			k.chunks, k.to = append(k.chunks, keptChunks.Get().(*keptChunk)), 0
		}
		n := copy(k.chunks[len(k.chunks)-1][k.to:], p)
		k.to += n
		p = p[n:]
	}
}

// front returns the first bytes, at least one if there are any. They are borrowed until drop or release.
func (k *keptBytes) front() []byte {
	switch len(k.chunks) {
	case 0:
		return nil
	case 1:
		return k.chunks[0][k.from:k.to]
	}
	return k.chunks[0][k.from:]
}

// drop removes n of the front bytes.
func (k *keptBytes) drop(n int) {
	k.size -= n
	if k.from += n; k.size == 0 {
		k.release()
	} else if k.from == readBuffer {
		keptChunks.Put(k.chunks[0])
		k.chunks, k.from = k.chunks[1:], 0
	}
}

// release removes all bytes.
func (k *keptBytes) release() {
	for _, c := range k.chunks {
		clear(c[:]) // there may be a token in it
		keptChunks.Put(c)
	}
	*k = keptBytes{}
}

// held returns the bytes of memory that the queue holds.
func (k *keptBytes) held() int { return len(k.chunks) * readBuffer }
