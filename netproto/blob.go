package netproto

// beginBlob begins the blob frame whose header was just read: it calls Begin, and
// decides whether the hashes are skipped.
func (r *Reader) beginBlob(h Handler) {
	q := &r.req
	r.skip = true
	if !q.beginBlob(r.frame.size) {
		return
	}
	q.begun = true
	r.blobLeft = uint64(q.NumHashes) * uint64(q.HashLen)
	r.skip = !h.Begin(q)
}

// MaxPiece is the largest number of hashes that one call of Handler.Hashes gets. A handler
// that bounds its work can pause between two calls.
const MaxPiece = 1024

// readBlob passes the next whole hashes in p to the Handler, in place, and returns how many
// bytes it has consumed. It copies the hash that the end of p cuts to carry.
func (r *Reader) readBlob(p []byte, h Handler) int {
	if r.skip || r.blobLeft == 0 { // a trailing partial hash is ignored
		return len(p)
	}
	p = p[:min(uint64(len(p)), r.blobLeft)]
	n := r.req.HashLen
	consumed := 0
	switch whole := min(len(p)/n, MaxPiece) * n; {
	case r.carryLen > 0:
		consumed = r.completeCarry(p, h)
	case whole > 0:
		consumed = r.passHashes(p[:whole:whole], h)
	default:
		consumed = copy(r.carry[:], p)
		r.carryLen = consumed
		r.copied += uint64(consumed)
	}
	r.blobLeft -= uint64(consumed)
	return consumed
}

// completeCarry appends p to the hash in carry and passes it on once it is whole. It returns
// how many bytes of p it has consumed.
func (r *Reader) completeCarry(p []byte, h Handler) int {
	n, before := r.req.HashLen, r.carryLen
	consumed := copy(r.carry[before:n], p)
	r.copied += uint64(consumed)
	if r.carryLen += consumed; r.carryLen < n {
		return consumed
	}
	if r.passHashes(r.carry[:n:n], h) == 0 {
		r.carryLen = before
		return 0
	}
	r.carryLen = 0
	return consumed
}

// passHashes passes hashes to the Handler and returns how many bytes it has consumed.
func (r *Reader) passHashes(hashes []byte, h Handler) int {
	r.skip = !h.Hashes(&r.req, hashes)
	consumed := len(hashes) - r.unread
	r.unread = 0
	return consumed
}
