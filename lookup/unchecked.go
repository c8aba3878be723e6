package lookup

// unchecked keeps the hashes at positions that the rules of a lookup may read although it
// does not look them up: behind its last token, and outside the masks of some windows. The
// reference keeps what it has found as a set of hashes, so such a block is present if its
// hash equals one that was looked up and found. Chained hashes never are equal: only requests
// made by hand differ.
type unchecked struct {
	keys   []byte // of the query's hash length each
	blocks []uncheckedBlock
}

// uncheckedBlock is a position of scan number scan.
type uncheckedBlock struct{ scan, position int32 }

// maxUnchecked bounds the hashes that a lookup keeps so: 256 KiB of 64 bytes each. Those
// beyond it count as absent, as those that index.Found does not know any more.
const maxUnchecked = 1 << 12

// beginUnchecked sets the positions of a group set that are kept. Requests by anchors have
// none: their hashes are chained.
func (q *Query) beginUnchecked(scan *groupScan) {
	if q.anchored != nil && q.anchored.request != nil {
		return
	}
	for _, g := range scan.groups { // equal masks may be read in different ways
		from, to := q.service.coord.UncheckedPositions(g, q.tokenLen, q.numHashes)
		if from < to && (scan.uncheckedTo == 0 || from < scan.uncheckedFrom) {
			scan.uncheckedFrom, scan.uncheckedTo = from, to
		}
	}
	q.limit = max(q.limit, scan.uncheckedTo*scan.receivedStride)
}

// keepUnchecked keeps the hashes of unchecked positions among the n received ones. It
// returns false if there are no further ones.
func (q *Query) keepUnchecked(number int, hashes []byte, n int) (more bool) {
	scan, u := &q.scans[number], &q.unchecked
	for end := min(scan.uncheckedTo, q.limit/scan.receivedStride); scan.uncheckedFrom < end; scan.uncheckedFrom++ {
		at := scan.uncheckedFrom
		if at < scan.positions && scan.mask.At(int64(at)) {
			continue // it is looked up
		}
		hash := at*scan.receivedStride + scan.receivedStride - 1 - q.received
		if hash >= n {
			return true
		}
		if len(u.blocks) == maxUnchecked {
			break
		}
		u.keys = append(u.keys, hashes[hash*q.hashLen:][:q.hashLen]...)
		u.blocks = append(u.blocks, uncheckedBlock{int32(number), int32(at)})
	}
	return false
}

// resolveUnchecked sets the bits of the blocks whose hash was found elsewhere. Where the ranks
// of equal hashes may add up, rankSums decides.
func (q *Query) resolveUnchecked() {
	partial := len(q.rankSums.partial) > 0
	for i, block := range q.unchecked.blocks {
		scan, at := &q.scans[block.scan], int(block.position)
		key := q.unchecked.keys[i*q.hashLen:][:q.hashLen]
		coverage := q.service.index.Found(&scan.cursor, key)
		if coverage == nil {
			continue
		}
		q.growBits(scan, at+1)
		for _, g := range scan.groups {
			switch {
			case coverage.Complete>>g&1 == 1:
				setBits(q.presence.Bits[g], at, 1)
			case partial:
				q.rankSums.addBlock(g, at, 0, key)
			}
		}
	}
}

// keptUncheckedBytes is the buffer in bytes that a pooled query keeps: that of a block of
// 32 hashes.
const keptUncheckedBytes = 1 << 10

func (u *unchecked) reset() {
	if cap(u.keys) > keptUncheckedBytes {
		*u = unchecked{}
	}
	u.keys, u.blocks = u.keys[:0], u.blocks[:0]
}
