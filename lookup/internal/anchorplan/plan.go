// Package anchorplan makes the requests of a lookup by anchors: which of a prompt's
// hashes are sent first, and which when these did not decide the hit. docs/protocol.md
// says what the requests mean.
package anchorplan

import (
	"fmt"
	"math"

	"github.com/hitline/hitline/netproto"
)

// Plan is the request of a lookup by anchors that is to be sent next. It may be used
// again; the zero value is ready.
type Plan struct {
	netproto.Anchors
	Blob []byte // the hashes of the request, copied

	hashes  []byte // of the prompt, during a call
	hashLen int
	stride  int
}

const (
	// mostAnchors is how many anchors are sent at most. With as many anchors as a gap
	// has blocks two exchanges take the fewest bytes; but an anchor is ten times the
	// work of one more hash behind another, so long prompts get longer gaps.
	maxAnchors = 64
	// digestsUpTo is up to how many bytes of hashes a request holds their digests
	// unasked: some ten microseconds. They are of use only where a chain has been stored
	// and not looked up since.
	maxDigestedBytes = 512 << 10
)

// blocks is how many blocks the hashes make.
func (p *Plan) blocks() int { return len(p.hashes) / p.hashLen / p.stride }

// addBlocks appends blocks from to end-1 to the blob.
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

// gapOf is how many blocks lie between two anchors of n blocks, of which unit make the
// alignment.
func anchorGap(n, unit int) int {
	gap := (int(math.Sqrt(float64(n))) + unit - 1) / unit * unit
	if n/gap >= maxAnchors {
		gap = (n/maxAnchors + unit - 1) / unit * unit
	}
	return gap
}

// FirstSize is how many bytes of hashes the first request has at most.
func FirstSize(hashes []byte, hashLen, stride int, unit uint32) int {
	n := len(hashes) / hashLen / stride
	if n == 0 {
		return 0
	}
	return (n/anchorGap(n, int(unit)) + 2) * hashLen // with the first and the last block
}

// Begin makes the first request about a prompt's hashes of hashLen bytes, joined: the
// first block, the last one that a hit may end with, and between them anchors at even
// distances. A block is stride hashes, and hits are multiples of unit blocks. hashes is
// only borrowed.
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

// reset begins a request.
func (p *Plan) reset(numHashes, first uint32) {
	p.Reset()
	p.Blob = p.Blob[:0]
	p.NumHashes, p.Stride, p.First = numHashes, uint32(p.stride), first
}

// drop forgets the hashes, which are the caller's.
func (p *Plan) dropHashes() { p.hashes = nil }

// anchor adds an anchor unless it is there already.
func (p *Plan) addAnchor(at int) {
	if n := p.Len(); n > 0 && int(p.Number(n-1)) >= at {
		return
	}
	p.Add(uint32(at))
	p.addBlocks(at, at+1)
}

// addDigests adds the digests of the anchors; of no meaning below block from.
func (p *Plan) addDigests(from int) {
	held, below := len(p.Blob), 0
	for i := range p.Len() {
		number := int(p.Number(i))
		digest := uint64(0)
		switch {
		case number < from:
		case p.stride == 1:
			digest = netproto.Digest(p.hashes[below*p.hashLen : (number+1)*p.hashLen])
		default:
			p.addBlocks(below, number+1)
			digest = netproto.Digest(p.Blob[held:])
			p.Blob = p.Blob[:held]
		}
		p.AddDigest(digest)
		below = number + 1
	}
}

// More is an answer that leaves the hit undetermined, in blocks: presence is known of
// those below Proven, would be of those below Claimed if digests had shown what stores say
// to be right, and those below End decide the hit.
type More struct{ Proven, Claimed, End uint32 }

// NextSize is how many bytes of hashes the next request has at most.
func (p *Plan) NextSize(more More) int {
	return (max(0, int(more.End)-int(more.Proven)) + p.Len()) * p.hashLen
}

// Narrow makes the second request: the anchors that the server can make use of, and the
// hashes behind them. hashes are those of Begin, only borrowed. It fails if the server
// asks for what the prompt does not have.
func (p *Plan) Narrow(hashes []byte, more More) error {
	p.hashes = hashes
	defer p.dropHashes()
	proven, claimed, end := int(more.Proven), int(more.Claimed), int(more.End)
	if proven > claimed || claimed > end || end > p.blocks() {
		return fmt.Errorf("anchors: blocks %d, %d, %d are wanted of %d", proven, claimed, end, p.blocks())
	}
	first := proven
	if len(p.Digests) == 0 {
		first = claimed // which digests will show
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
