package netproto

import (
	"encoding/binary"
	"errors"
)

// Anchors is what a request by anchors says in front of its hashes. It asks what a
// lookup asks, of a server that may know the chain in front of a hash, with a few
// of the prompt's hashes in place of all of them.
//
// A block here is every stride-th hash of the prompt: block b is hash
// b*stride + stride - 1. The server says what the stride is.
type Anchors struct {
	// NumHashes is how many hashes a lookup of the prompt would have. With 0 the
	// request asks for the server's parameters.
	NumHashes uint32
	// Stride is how many hashes make a block, as the client has it.
	Stride uint32
	// First is the block of the first hash behind those of the anchors.
	First uint32
	// Numbers are the blocks of the anchors, ascending, encoded: 4 bytes each.
	Numbers []byte
	// Digests are empty, or hold for each anchor the Digest of the hashes of the
	// blocks behind the anchor before it, itself included: 8 bytes each.
	Digests []byte
}

// MaxAnchors is how many anchors a request has at most: more than the square root
// of the hashes that a message can hold.
const MaxAnchors = 4096

// What may be wrong with a request by anchors.
var (
	ErrAnchorsParamsLen = errors.New("shape of anchors is not 16 bytes long")
	ErrAnchors          = errors.New("anchors are not ascending 32-bit numbers, at most 4096")
	ErrDigests          = errors.New("digests are not 8 bytes an anchor")
	ErrAnchorCount      = errors.New("fewer hashes than anchors")
)

// shapeLen is the length of the frame with num_tokens, num_hashes, stride and first.
const shapeLen = 16

// Len returns the number of anchors.
func (a *Anchors) Len() int { return len(a.Numbers) / 4 }

// Number returns the block of anchor i.
func (a *Anchors) Number(i int) uint32 { return binary.BigEndian.Uint32(a.Numbers[4*i:]) }

// Digest returns the digest that belongs to anchor i; false if there is none.
func (a *Anchors) Digest(i int) (uint64, bool) {
	if len(a.Digests) == 0 {
		return 0, false
	}
	return binary.BigEndian.Uint64(a.Digests[8*i:]), true
}

// keepGathered is the largest buffer in bytes of a frame of anchors that an idle
// connection keeps.
const keepGathered = 4 << 10

// reset forgets the last request and keeps its buffers.
func (a *Anchors) reset() {
	*a = Anchors{Numbers: keepSmall(a.Numbers), Digests: keepSmall(a.Digests)}
}

func keepSmall(b []byte) []byte {
	if cap(b) > keepGathered {
		return nil
	}
	return b[:0]
}

// gather appends bytes of a frame that may have so many.
func (q *Request) gather(dst, p []byte, most int) []byte {
	if len(dst)+len(p) > most {
		q.fail(ErrAnchors)
		return dst
	}
	return append(dst, p...)
}

// endShape reads num_tokens, num_hashes, stride and first.
func (q *Request) endShape(size, alignment uint64) {
	if size != shapeLen {
		q.fail(ErrAnchorsParamsLen)
		return
	}
	q.NumTokens = uint64(binary.BigEndian.Uint32(q.scratch[0:]))
	q.Unaligned = alignment > 0 && q.NumTokens%alignment != 0
	q.Anchors.NumHashes = binary.BigEndian.Uint32(q.scratch[4:])
	q.Anchors.Stride = binary.BigEndian.Uint32(q.scratch[8:])
	q.Anchors.First = binary.BigEndian.Uint32(q.scratch[12:])
}

// endNumbers checks that the anchors ascend.
func (q *Request) endNumbers() {
	a := &q.Anchors
	if len(a.Numbers)%4 != 0 {
		q.fail(ErrAnchors)
		return
	}
	for i := 1; i < a.Len(); i++ {
		if a.Number(i) <= a.Number(i-1) {
			q.fail(ErrAnchors)
			return
		}
	}
}

// AppendAnchors appends a request by anchors up to and including the header of its
// blob frame: the hashes of the anchors and then those from block First on, blobLen
// bytes of them, follow on the wire.
func AppendAnchors(dst, envelope []byte, numTokens uint32, a *Anchors, hashLen, blobLen int) []byte {
	dst = append(dst, envelope...)
	dst = AppendFrame(dst, []byte(tagNames[TagAnchors]), true)
	dst = AppendFrameHeader(dst, shapeLen, true)
	for _, v := range [...]uint32{numTokens, a.NumHashes, a.Stride, a.First} {
		dst = binary.BigEndian.AppendUint32(dst, v)
	}
	dst = binary.BigEndian.AppendUint16(AppendFrameHeader(dst, 2, true), uint16(hashLen))
	dst = AppendFrame(dst, a.Numbers, true)
	dst = AppendFrame(dst, a.Digests, true)
	return AppendFrameHeader(dst, blobLen, false)
}

// Reset empties the anchors and keeps their memory.
func (a *Anchors) Reset() { *a = Anchors{Numbers: a.Numbers[:0], Digests: a.Digests[:0]} }

// Add appends an anchor. Either all anchors are added with a digest or none is.
func (a *Anchors) Add(number uint32) { a.Numbers = binary.BigEndian.AppendUint32(a.Numbers, number) }

// AddDigest appends the digest of the anchor that was added last.
func (a *Anchors) AddDigest(digest uint64) {
	a.Digests = binary.BigEndian.AppendUint64(a.Digests, digest)
}

// Kinds of replies to a request by anchors, their first frame; StatusFailed is one
// as well.
const (
	AnchorsHit    = 0x01 // hit tokens u32
	AnchorsMore   = 0x02 // known u32, said u32, end u32
	AnchorsParams = 0x03 // stride u32, unit u32; 0 and 0: anchors are not served
)

// AppendAnchorsReply appends a reply to a request by anchors: a kind and a frame of
// its numbers.
func AppendAnchorsReply(dst, envelope []byte, kind byte, numbers ...uint32) []byte {
	dst = append(dst, envelope...)
	dst = AppendFrame(dst, []byte{kind}, true)
	dst = AppendFrameHeader(dst, 4*len(numbers), false)
	for _, n := range numbers {
		dst = binary.BigEndian.AppendUint32(dst, n)
	}
	return dst
}

// ParseAnchorsReply reads the numbers of a reply to a request by anchors, of which
// there must be as many as numbers has room for.
func ParseAnchorsReply(frame []byte, numbers ...*uint32) bool {
	if len(frame) != 4*len(numbers) {
		return false
	}
	for i, n := range numbers {
		*n = binary.BigEndian.Uint32(frame[4*i:])
	}
	return true
}
