package netproto

import (
	"fmt"
	"slices"
)

// Hashes is a lazy view over a blob: block hashes of one length joined without
// separators. Element i is blob[i*n : (i+1)*n]; nothing is copied, so a hash is
// valid exactly as long as the blob is. A trailing partial hash is not an
// element, and a view with hash length 0 has no elements (reference:
// BlobBlockHashes). The zero value is an empty view. Safe for concurrent
// reading.
type Hashes struct {
	blob    []byte
	hashLen int
}

// NewHashes views blob as hashes of hashLen bytes each. A hashLen of zero or
// below means that there are none.
func NewHashes(blob []byte, hashLen int) Hashes {
	if hashLen <= 0 {
		return Hashes{}
	}
	return Hashes{blob: blob, hashLen: hashLen}
}

// JoinHashes appends separate hashes to buf[:0] and views them; buf may be nil. It fails
// with ErrUnequalHashes unless all have one length.
func JoinHashes(buf []byte, hashes [][]byte) (Hashes, error) {
	if len(hashes) == 0 {
		return Hashes{}, nil
	}
	n := len(hashes[0])
	buf = slices.Grow(buf[:0], n*len(hashes))
	for i, h := range hashes {
		if len(h) != n {
			return Hashes{}, fmt.Errorf("%w: hash %d has %d bytes, the first has %d", ErrUnequalHashes, i, len(h), n)
		}
		buf = append(buf, h...)
	}
	return NewHashes(buf, n), nil
}

// HashLen returns the length of one hash in bytes, 0 for a view without hashes.
func (h Hashes) HashLen() int { return h.hashLen }

// Len returns the number of whole hashes.
func (h Hashes) Len() int {
	if h.hashLen == 0 {
		return 0
	}
	return len(h.blob) / h.hashLen
}

// At returns hash i, borrowed from the blob with its capacity cut to its
// length. Like a slice it panics when i is outside [0, Len()).
func (h Hashes) At(i int) []byte {
	if i < 0 || i >= h.Len() {
		panic("netproto: hash index out of range")
	}
	return h.blob[i*h.hashLen : (i+1)*h.hashLen : (i+1)*h.hashLen]
}

// Bytes returns the whole hashes of the view as one borrowed slice, without a
// trailing partial hash.
func (h Hashes) Bytes() []byte {
	end := h.Len() * h.hashLen
	return h.blob[:end:end]
}

// Blob returns all bytes of the view, with those behind the last whole hash, borrowed.
func (h Hashes) Blob() []byte { return h.blob }

// All iterates over index and hash.
func (h Hashes) All() func(yield func(int, []byte) bool) {
	return func(yield func(int, []byte) bool) {
		for i := range h.Len() {
			if !yield(i, h.At(i)) {
				return
			}
		}
	}
}

// Chunks is the compact view of a group whose block is k hash blocks long: chunk
// c is keyed by the last of its sub-hashes, raw hash c*k + k - 1, and hashes
// behind the last whole chunk stand for nothing (reference:
// _CompactChunkHashList). Ownership is that of the Hashes below.
type Chunks struct {
	raw Hashes
	k   int
}

// NewChunks views raw hashes, each covering hashBlockSize tokens, as chunks of
// blockSize tokens. It fails with ErrBlockSize unless blockSize is a positive
// multiple of hashBlockSize.
func NewChunks(raw Hashes, hashBlockSize, blockSize int) (Chunks, error) {
	if hashBlockSize <= 0 || blockSize <= 0 || blockSize%hashBlockSize != 0 {
		return Chunks{}, ErrBlockSize
	}
	return Chunks{raw: raw, k: blockSize / hashBlockSize}, nil
}

// Stride returns k, the number of hash blocks in a chunk.
func (c Chunks) Stride() int { return c.k }

// Len returns the number of whole chunks.
func (c Chunks) Len() int {
	if c.k == 0 {
		return 0
	}
	return c.raw.Len() / c.k
}

// RawIndex returns the raw hash index that keys chunk i.
func (c Chunks) RawIndex(i int) int { return i*c.k + c.k - 1 }

// At returns the hash that keys chunk i; it panics when i is outside
// [0, Len()).
func (c Chunks) At(i int) []byte {
	if i < 0 || i >= c.Len() {
		panic("netproto: chunk index out of range")
	}
	return c.raw.At(c.RawIndex(i))
}

// All iterates over chunk number and key.
func (c Chunks) All() func(yield func(int, []byte) bool) {
	return func(yield func(int, []byte) bool) {
		for i := range c.Len() {
			if !yield(i, c.At(i)) {
				return
			}
		}
	}
}
