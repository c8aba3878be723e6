package netproto

// beginBlob calls Begin, and decides whether the hashes are skipped.
func (r *Reader) beginBlob(h Handler) {
	r.blobLeft = uint64(r.req.NumHashes) * uint64(r.req.HashLen)
	if !h.Begin(&r.req) {
		r.blobLeft = 0
	}
}

// readBlob passes the whole hashes in p to the Handler, in place. It copies the hash that the end
// of p cuts to carry. A trailing partial hash is ignored.
func (r *Reader) readBlob(p []byte, h Handler) {
	n := r.req.HashLen
	p = p[:min(uint64(len(p)), r.blobLeft)]
	if r.carryLen > 0 {
		p = p[r.carryHash(p[:min(len(p), n-r.carryLen)]):]
		if r.carryLen < n {
			return
		}
		r.carryLen = 0
		r.passHashes(r.carry[:n:n], h)
	}
	if r.blobLeft == 0 {
		return
	}
	whole := len(p) / n * n
	if whole > 0 {
		r.blobLeft -= uint64(whole)
		r.passHashes(p[:whole:whole], h)
	}
	if r.blobLeft > 0 {
		r.carryHash(p[whole:])
	}
}

// carryHash copies p, which is a part of one hash, to carry, and returns its length.
func (r *Reader) carryHash(p []byte) int {
	r.carryLen += copy(r.carry[r.carryLen:], p)
	r.blobLeft -= uint64(len(p))
	return len(p)
}

// passHashes passes hashes to the Handler.
func (r *Reader) passHashes(hashes []byte, h Handler) {
	if !h.Hashes(&r.req, hashes) {
		r.blobLeft = 0
	}
}

// BlobLeft returns how many bytes of hashes of the current blob have not arrived and will be passed
// on: 0 outside of a blob, and if they are skipped.
func (r *Reader) BlobLeft() int { return int(r.blobLeft) }
