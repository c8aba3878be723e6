package netproto

import (
	"encoding/binary"
	"errors"
)

// Anchors holds the frames of an anchors request in front of its blob. The request
// looks up a prompt as TagLookup does, but sends a few of its hashes instead of all.
// The server must have recorded which stored block follows which.
//
// A block here is Stride hashes of the prompt. Block b is named by the last of them,
// hash KeyIndex(b, Stride). An anchor is a block that is sent with its number.
//
// In a Request the slices are valid until the Handler's method returns. Not safe for
// concurrent use.
type Anchors struct {
	// NumHashes is the number of hashes that a lookup of the prompt would send. 0
	// requests the server's parameters (AnchorsParams).
	NumHashes uint32
	// Stride is the number of hashes in a block. The server refuses any but its own.
	Stride uint32
	// First is the block number of the first hash behind those of the anchors.
	First uint32
	// Numbers are the block numbers of the anchors, ascending, big-endian, 4 bytes
	// each.
	Numbers []byte
	// Digests are empty or hold 8 bytes for each anchor, big-endian. An anchor's
	// Digest covers the hashes of the blocks after the anchor before it, up to and
	// including its own.
	Digests []byte
}

// MaxAnchors is the largest number of anchors of a request. It exceeds the square
// root of the hashes that fit a message: that many anchors send the fewest bytes.
const MaxAnchors = 4096

// Problems of an anchors request (Request.Problem), beside those of all requests.
var (
	ErrAnchorsParamsLen = errors.New("anchors params are not 16 bytes long")
	ErrAnchors          = errors.New("anchors are not ascending 32-bit numbers, at most 4096")
	ErrDigests          = errors.New("digests are not 8 bytes an anchor")
	ErrAnchorCount      = errors.New("fewer hashes than anchors")
)

// anchorsParamsLen is the length in bytes of the params frame: num_tokens, num_hashes,
// stride and first, u32 each.
const anchorsParamsLen = 16

// Len returns the number of anchors.
func (a *Anchors) Len() int { return len(a.Numbers) / 4 }

// Number returns the block number of anchor i, in [0, Len()).
func (a *Anchors) Number(i int) uint32 { return binary.BigEndian.Uint32(a.Numbers[4*i:]) }

// Digest returns the digest of anchor i, false if the request has no digests.
func (a *Anchors) Digest(i int) (uint64, bool) {
	if len(a.Digests) == 0 {
		return 0, false
	}
	return binary.BigEndian.Uint64(a.Digests[8*i:]), true
}

// maxIdleAnchors bounds Numbers and Digests, in bytes each, that an idle connection
// retains.
const maxIdleAnchors = 4 << 10

// reset empties the anchors for the next request and retains small buffers.
func (a *Anchors) reset() {
	*a = Anchors{Numbers: retainSmall(a.Numbers), Digests: retainSmall(a.Digests)}
}

// retainSmall returns b emptied, or nil if its buffer is over maxIdleAnchors.
func retainSmall(b []byte) []byte {
	if cap(b) > maxIdleAnchors {
		return nil
	}
	return b[:0]
}

// appendBounded appends bytes of a frame body to dst. More than limit bytes are the
// given problem of the request, and the excess is not kept.
func (q *Request) appendBounded(dst, p []byte, limit int, problem error) []byte {
	if len(dst)+len(p) > limit {
		q.fail(problem)
		return dst
	}
	return append(dst, p...)
}

// endAnchorsParams decodes the params frame, whose size in bytes is given, from scratch.
func (q *Request) endAnchorsParams(size, alignment uint64) {
	if size != anchorsParamsLen {
		q.fail(ErrAnchorsParamsLen)
		return
	}
	q.NumTokens = uint64(binary.BigEndian.Uint32(q.scratch[0:]))
	q.Unaligned = alignment > 0 && q.NumTokens%alignment != 0
	q.Anchors.NumHashes = binary.BigEndian.Uint32(q.scratch[4:])
	q.Anchors.Stride = binary.BigEndian.Uint32(q.scratch[8:])
	q.Anchors.First = binary.BigEndian.Uint32(q.scratch[12:])
}

// endNumbers checks that the block numbers are whole and ascend.
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

// AppendAnchors appends an anchors request up to and including the header of its blob
// frame. The blob of blobLen bytes follows on the wire: the hashes of the anchors, then
// those of the blocks from First on.
func AppendAnchors(dst, envelope []byte, numTokens uint32, a *Anchors, hashLen, blobLen int) []byte {
	dst = append(dst, envelope...)
	dst = AppendFrame(dst, []byte(tagNames[TagAnchors]), true)
	dst = AppendFrameHeader(dst, anchorsParamsLen, true)
	for _, v := range [...]uint32{numTokens, a.NumHashes, a.Stride, a.First} {
		dst = binary.BigEndian.AppendUint32(dst, v)
	}
	dst = binary.BigEndian.AppendUint16(AppendFrameHeader(dst, 2, true), uint16(hashLen))
	dst = AppendFrame(dst, a.Numbers, true)
	dst = AppendFrame(dst, a.Digests, true)
	return AppendFrameHeader(dst, blobLen, false)
}

// Reset empties the anchors and retains their buffers, of any size.
func (a *Anchors) Reset() { *a = Anchors{Numbers: a.Numbers[:0], Digests: a.Digests[:0]} }

// Add appends an anchor at block number. Each Add is followed by AddDigest, or none is.
func (a *Anchors) Add(number uint32) { a.Numbers = binary.BigEndian.AppendUint32(a.Numbers, number) }

// AddDigest appends the digest of the last added anchor.
func (a *Anchors) AddDigest(digest uint64) {
	a.Digests = binary.BigEndian.AppendUint64(a.Digests, digest)
}

// First frames of the replies to an anchors request, with the fields of the second
// frame. StatusFailed is one as well.
const (
	AnchorsHit    = 0x01 // hit u32, in tokens
	AnchorsMore   = 0x02 // proven u32, claimed u32, end u32, in blocks: the hit is not determined yet
	AnchorsParams = 0x03 // stride u32, unit u32: the server's parameters; 0 and 0 if it does not serve anchors
)

// AppendAnchorsReply appends a reply to an anchors request: a frame of its kind, then
// a frame of the numbers, u32 each.
func AppendAnchorsReply(dst, envelope []byte, kind byte, numbers ...uint32) []byte {
	dst = append(dst, envelope...)
	dst = AppendFrame(dst, []byte{kind}, true)
	dst = AppendFrameHeader(dst, 4*len(numbers), false)
	for _, n := range numbers {
		dst = binary.BigEndian.AppendUint32(dst, n)
	}
	return dst
}

// ParseAnchorsReply decodes the second frame of a reply to an anchors request into
// numbers. It returns false if the frame does not hold exactly that many.
func ParseAnchorsReply(frame []byte, numbers ...*uint32) bool {
	if len(frame) != 4*len(numbers) {
		return false
	}
	for i, n := range numbers {
		*n = binary.BigEndian.Uint32(frame[4*i:])
	}
	return true
}
