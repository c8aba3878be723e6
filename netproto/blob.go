package netproto

// beginBlob prepares for the blob frame whose header was just read.
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

// blob hands on the whole hashes in p, in place, and carries over the one that
// the end of p cuts.
func (r *Reader) blob(p []byte, h Handler) {
	if r.skip {
		return
	}
	if uint64(len(p)) > r.blobLeft { // a trailing partial hash is ignored
		p = p[:r.blobLeft]
	}
	r.blobLeft -= uint64(len(p))
	n := r.req.HashLen
	if r.carryLen > 0 {
		used := copy(r.carry[r.carryLen:n], p)
		r.copied += uint64(used)
		r.carryLen += used
		p = p[used:]
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
