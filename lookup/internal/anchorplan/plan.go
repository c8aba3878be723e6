// Package anchorplan chooses the hashes that a lookup by anchors sends: in its first
// request, and in its second one if the first did not determine the hit. docs/protocol.md
// defines the requests.
//
// Positions and numbers of blocks count from 0. A block is stride hashes, and its hash is
// the last of them. A gap is the blocks between two anchors.
package anchorplan

import (
	"fmt"
	"math"

	"github.com/hitline/hitline/netproto"
)

// Plan is the next request of a lookup by anchors. The zero value is ready for Begin, and a
// Plan may be reused. It is not safe for concurrent use.
type Plan struct {
	netproto.Anchors
	Blob []byte // the hashes of the request; a copy, valid until the next Begin or Narrow

	hashes  []byte // of the prompt, borrowed; nil between calls
	hashLen int    // bytes
	stride  int    // hashes a block
}

const (
	// maxAnchors bounds the anchors of a request. Two exchanges take the fewest bytes if
	// there are as many anchors as blocks in a gap. But the server needs ten times as long
	// for an anchor as for a further hash of a gap, so long prompts get longer gaps.
	maxAnchors = 64
	// maxDigestedBytes is up to how many bytes of hashes the first request has digests. They
	// take some ten microseconds, and help only if the chain was stored but not looked up
	// since.
	maxDigestedBytes = 512 << 10
)

// blocks returns the number of whole blocks of the prompt.
func (p *Plan) blocks() int { return len(p.hashes) / p.hashLen / p.stride }

// addBlocks appends the hashes of blocks from to end-1 to the blob.
func (p *Plan) addBlocks(from, end int) {
	if p.stride == 1 {
		p.Blob = append(p.Blob, p.hashes[from*p.hashLen:end*p.hashLen]...)
		return
	}
	for b := from; b < end; b++ {
		at := netproto.KeyIndex(b, p.stride) * p.hashLen
		p.Blob = append(p.Blob, p.hashes[at:at+p.hashLen]...)
	}
}

// anchorGap returns the distance in blocks of the anchors of a prompt of n blocks, a
// multiple of unit.
func anchorGap(n, unit int) int {
	gap := (int(math.Sqrt(float64(n))) + unit - 1) / unit * unit
	if n/gap >= maxAnchors {
		gap = (n/maxAnchors + unit - 1) / unit * unit
	}
	return gap
}

// FirstSize returns an upper bound on the blob in bytes of the request that Begin makes.
func FirstSize(hashes []byte, hashLen, stride int, unit uint32) int {
	n := len(hashes) / hashLen / stride
	if n == 0 {
		return 0
	}
	return (n/anchorGap(n, int(unit)) + 2) * hashLen // with the first and the last block
}

// Begin makes the first request: anchors at the first block, at the last one that a hit may
// end with, and at even distances between them. hashes are the prompt's, joined, of hashLen
// bytes each, and borrowed until Begin returns. A block is stride hashes, and hits are
// multiples of unit blocks.
func (p *Plan) Begin(hashes []byte, hashLen, stride int, unit uint32) {
	p.hashes, p.hashLen, p.stride = hashes, hashLen, stride
	defer p.dropHashes()
	n, u := p.blocks(), int(unit)
	p.reset(uint32(len(hashes)/hashLen), 0)
	if n == 0 {
		return
	}
	p.addAnchor(0)
	gap := anchorGap(n, u)
	for at := gap - 1; at < n-1; at += gap {
		p.addAnchor(at)
	}
	if last := n/u*u - 1; last > 0 {
		p.addAnchor(last)
	}
	if n*hashLen <= maxDigestedBytes {
		p.addDigests(0)
	}
}

// reset removes all anchors and hashes and begins a request.
func (p *Plan) reset(numHashes, first uint32) {
	p.Reset()
	p.Blob = p.Blob[:0]
	p.NumHashes, p.Stride, p.First = numHashes, uint32(p.stride), first
}

// dropHashes drops the hashes, which are borrowed.
func (p *Plan) dropHashes() { p.hashes = nil }

// addAnchor adds an anchor at a block unless there is one at it or after it.
func (p *Plan) addAnchor(at int) {
	if n := p.Len(); n > 0 && int(p.Number(n-1)) >= at {
		return
	}
	p.Add(uint32(at))
	p.addBlocks(at, at+1)
}

// addDigests adds a digest for each anchor. Those of anchors before block from are 0 and
// have no meaning.
func (p *Plan) addDigests(from int) {
	blobLen, next := len(p.Blob), 0
	for i := range p.Len() {
		number := int(p.Number(i))
		digest := uint64(0)
		switch {
		case number < from:
		case p.stride == 1:
			digest = netproto.Digest(p.hashes[next*p.hashLen : (number+1)*p.hashLen])
		default:
			p.addBlocks(next, number+1)
			digest = netproto.Digest(p.Blob[blobLen:])
			p.Blob = p.Blob[:blobLen]
		}
		p.AddDigest(digest)
		next = number + 1
	}
}

// More is an answer that leaves the hit undetermined, in blocks. The server knows which
// blocks before Proven are present, and would know it of those before Claimed if it had
// digests that match. Blocks at End and after do not matter.
type More struct{ Proven, Claimed, End uint32 }

// NextSize returns an upper bound on the blob in bytes of the request that Narrow makes.
func (p *Plan) NextSize(more More) int {
	blocks := uint64(more.End-min(more.End, more.Proven)) + uint64(p.Len())
	return int(min(blocks*uint64(p.hashLen), math.MaxInt))
}

// Narrow makes the second request: the anchors that the server still needs, and all hashes
// from there to more.End. hashes are those of Begin and borrowed until Narrow returns. It
// returns an error if more is not within the prompt.
func (p *Plan) Narrow(hashes []byte, more More) error {
	p.hashes = hashes
	defer p.dropHashes()
	if more.Proven > more.Claimed || more.Claimed > more.End || uint64(more.End) > uint64(p.blocks()) {
		return fmt.Errorf("anchors: blocks %d, %d, %d are wanted of %d", more.Proven, more.Claimed, more.End, p.blocks())
	}
	proven, claimed, end := int(more.Proven), int(more.Claimed), int(more.End)
	first := proven
	if len(p.Digests) == 0 {
		first = claimed // the second request has the digests up to there
	}
	old := netproto.Anchors{Numbers: append([]byte(nil), p.Numbers...)}
	p.reset(p.NumHashes, uint32(first))
	for i := range old.Len() {
		if at := int(old.Number(i)); at < first && at >= proven-1 {
			p.addAnchor(at)
		}
	}
	if first > proven {
		p.addDigests(proven)
	}
	p.addBlocks(first, end)
	return nil
}
