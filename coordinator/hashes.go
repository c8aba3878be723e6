package coordinator

import "math"

// Hashes is a lazy view over a blob: block hashes of n bytes each, joined. Hash i is
// blob[i*n : (i+1)*n]. Nothing is copied, so a hash is valid as long as the blob is. A
// trailing partial hash is not an element, and a view with hash length 0 has none. The
// zero value is an empty view. Safe for concurrent use while nobody writes the blob.
// (Reference: BlobBlockHashes.)
//
// The hashes of a prompt may leave out those of its first tokens: see From.
type Hashes struct { // of four words, so that it is passed in registers
	blob    []byte
	hashLen int32
	start   uint32 // tokens; noStart for a number that is no start
}

// noStart is the start of hashes that were given one below 0 or beyond 32 bits.
const noStart = math.MaxUint32

// NewHashes returns the view of blob as hashes of hashLen bytes each. The view borrows
// blob. With a hashLen of zero or below it is empty.
func NewHashes(blob []byte, hashLen int) Hashes {
	if hashLen <= 0 {
		return Hashes{}
	}
	return Hashes{blob: blob, hashLen: int32(min(hashLen, math.MaxInt32))}
}

// From returns h as the hashes of a prompt from token start on: its first hash is that of the
// block start/H, H being the hash block size. A lookup of them begins at start: see
// Coordinator.CheckStart. From does not cut hashes off. No lookup begins below 0, or at 2^32-1 or
// beyond.
func (h Hashes) From(start int64) Hashes {
	h.start = noStart
	if start >= 0 && start < noStart {
		h.start = uint32(start)
	}
	return h
}

// Start returns the token at which the hashes begin, 0 unless From was called.
func (h Hashes) Start() int64 { return int64(h.start) }

// HashLen returns the length of one hash in bytes, 0 for the zero view.
func (h Hashes) HashLen() int { return int(h.hashLen) }

// Len returns the number of whole hashes.
func (h Hashes) Len() int {
	if h.hashLen == 0 {
		return 0
	}
	return len(h.blob) / int(h.hashLen)
}

// At returns hash i, borrowed from the blob with its capacity cut to its
// length. Like a slice it panics when i is outside [0, Len()).
func (h Hashes) At(i int) []byte {
	if i < 0 || i >= h.Len() {
		panic("coordinator: hash index out of range")
	}
	n := int(h.hashLen)
	return h.blob[i*n : (i+1)*n : (i+1)*n]
}

// Bytes returns the blob without a trailing partial hash, borrowed.
func (h Hashes) Bytes() []byte {
	end := h.Len() * int(h.hashLen)
	return h.blob[:end:end]
}

// Blob returns the blob with a trailing partial hash, borrowed.
func (h Hashes) Blob() []byte { return h.blob }

// All iterates over index and hash, borrowed as by At.
func (h Hashes) All() func(yield func(int, []byte) bool) {
	return func(yield func(int, []byte) bool) {
		for i := range h.Len() {
			if !yield(i, h.At(i)) {
				return
			}
		}
	}
}

// KeyIndex returns the index of the hash that keys chunk i of a group with blocks of
// stride hash blocks: the last hash inside the chunk. n hashes make n/stride whole
// chunks. (Reference: _CompactChunkHashList.)
func KeyIndex(i, stride int) int { return i*stride + stride - 1 }
