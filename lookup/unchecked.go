package lookup

// unchecked has the hashes of a lookup at positions that its rules may read without looking
// them up: those behind its last token, and some outside a window's mask. The reference keeps
// what it has found as a set of hashes. So such a block is present if its hash equals one
// that was looked up and found. Hash chains do not repeat: only requests made by hand differ.
type unchecked struct {
	keys   []byte // of the query's hash length each
	blocks []uncheckedBlock
}

// uncheckedBlock is a position of scan number scan.
type uncheckedBlock struct{ scan, position int32 }

// maxUnchecked bounds the hashes of a lookup that are kept so, to 256 KiB. Those beyond it
// count as absent, so a hit is never too high.
const maxUnchecked = 1 << 12

// beginUnchecked sets the positions of a group set that are kept. Requests by anchors are
// about chains.
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
		key := hashes[hash*q.hashLen:][:q.hashLen]
		u.keys = append(u.keys, key...)
		u.blocks = append(u.blocks, uncheckedBlock{int32(number), int32(at)})
		if q.service.sumsRanks() {
			q.growBits(scan, at+1)
			for _, g := range scan.groups {
				q.rankSums.addBlock(g, at, 0, key)
			}
		}
	}
	return false
}

// resolveUnchecked sets the bits of the blocks whose hash was found elsewhere.
func (q *Query) resolveUnchecked() {
	for i, block := range q.unchecked.blocks {
		scan, at := &q.scans[block.scan], int(block.position)
		coverage := q.service.index.Found(&scan.cursor, q.unchecked.keys[i*q.hashLen:][:q.hashLen])
		if coverage == nil {
			continue
		}
		q.growBits(scan, at+1)
		for _, g := range scan.groups {
			if coverage.Complete>>g&1 == 1 {
				setBits(q.presence.Bits[g], at, 1)
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
