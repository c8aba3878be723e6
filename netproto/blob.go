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

// readBlob passes the whole hashes in p to the Handler, in place. It copies the hash
// that the end of p cuts to carry.
func (r *Reader) readBlob(p []byte, h Handler) {
	if r.skip {
		return
	}
	if uint64(len(p)) > r.blobLeft { // a trailing partial hash is ignored
		p = p[:r.blobLeft]
	}
	r.blobLeft -= uint64(len(p))
	n := r.req.HashLen
	if r.carryLen > 0 {
		completed := copy(r.carry[r.carryLen:n], p)
		r.copied += uint64(completed)
		r.carryLen += completed
		p = p[completed:]
		if r.carryLen < n {
			return
		}
		r.carryLen = 0
		if r.skip = !h.Hashes(&r.req, r.carry[:n:n]); r.skip {
			return
		}
	}
	whole := len(p) - len(p)%max(n, 1)
	if whole > 0 {
		if r.skip = !h.Hashes(&r.req, p[:whole:whole]); r.skip {
			return
		}
	}
	r.carryLen = copy(r.carry[:], p[whole:])
	r.copied += uint64(r.carryLen)
}
