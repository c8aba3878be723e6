package coordinator

// Hashes is a lazy view over a blob: block hashes of n bytes each, joined. Hash i is
// blob[i*n : (i+1)*n]. Nothing is copied, so a hash is valid as long as the blob is. A
// trailing partial hash is not an element, and a view with hash length 0 has none. The
// zero value is an empty view. Safe for concurrent use while nobody writes the blob.
// (Reference: BlobBlockHashes.)
//
// The hashes of a prompt may leave out those of its first tokens: see From.
type Hashes struct {
	blob    []byte
	hashLen int
	start   int64 // tokens
}

// NewHashes returns the view of blob as hashes of hashLen bytes each. The view borrows
// blob. With a hashLen of zero or below it is empty.
func NewHashes(blob []byte, hashLen int) Hashes {
	if hashLen <= 0 {
		return Hashes{}
	}
	return Hashes{blob: blob, hashLen: hashLen}
}

// From returns h as the hashes of a prompt from token start on: its first hash is that of the
// block start/H, H being the hash block size. A lookup of them begins at start: see
// Coordinator.CheckStart. From does not cut hashes off.
func (h Hashes) From(start int64) Hashes {
	h.start = start
	return h
}

// Start returns the token at which the hashes begin, 0 unless From was called.
func (h Hashes) Start() int64 { return h.start }

// HashLen returns the length of one hash in bytes, 0 for the zero view.
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
		panic("coordinator: hash index out of range")
	}
	return h.blob[i*h.hashLen : (i+1)*h.hashLen : (i+1)*h.hashLen]
}

// Bytes returns the blob without a trailing partial hash, borrowed.
func (h Hashes) Bytes() []byte {
	end := h.Len() * h.hashLen
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
