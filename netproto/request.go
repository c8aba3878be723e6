package netproto

import (
	"math"
)

// Request is one message as far as it has been read. A Reader has one Request
// and reuses it for each message: it is valid until End or Dropped returns.
type Request struct {
	// Tag is the kind of request.
	Tag Tag
	// Envelope is what goes in front of the reply: the frames up to and including
	// the delimiter, encoded; empty when there are none.
	Envelope []byte
	// NumTokens is the length in tokens that a lookup asks for, as sent; a number
	// over 64 bits reads as math.MaxUint64.
	NumTokens uint64
	// Unaligned says that NumTokens, whatever its size, is not a multiple of the
	// Reader's alignment.
	Unaligned bool
	// HashLen is the length of a hash in bytes, 0 when there are no hashes.
	HashLen int
	// NumHashes is the number of whole hashes that the blob frame announces.
	NumHashes int
	// Rank and FirstChunk say where a store or evict belongs.
	Rank       GroupRank
	FirstChunk uint32
	// Before is the key in front of the first of a store, empty if there is none.
	Before []byte
	// Anchors belong to a request by anchors, whose NumHashes counts those in the
	// blob.
	Anchors Anchors
	// Echo holds the further frames of a ping, encoded.
	Echo []byte
	// Problem says why the request can be framed but not served, nil if it can.
	Problem error

	name      [maxTag + 1]byte // first bytes of the tag; one more than the longest shows a longer one
	scratch   [MaxHashLen]byte // a group rank, a shape, or the key before the first
	filled    int              // bytes of name or scratch that the current frame has filled
	hashLen   uint64           // hash_len as sent, saturated
	remainder uint64           // num_tokens modulo the alignment
	echoLast  int              // where the last echoed frame's header begins
	echoSize  int              // payload bytes of a ping so far
	begun     bool             // Begin was called
}

// bodyRole is what a body frame means.
type bodyRole uint8

const (
	roleIgnored bodyRole = iota
	roleTag
	roleNumTokens
	roleHashLen
	rolePlace
	roleBlob
	rolePrevious // the key before the first of a store
	roleShape
	roleNumbers
	roleDigests
	roleEcho
	roleExtra // a frame that a strict request must not have
)

// roleOf maps a body frame, by its number in the body, to its meaning.
func (q *Request) roleOf(body int) bodyRole {
	if body == 0 {
		return roleTag
	}
	switch q.Tag {
	case TagLookup, TagExplain:
		return [...]bodyRole{roleTag, roleNumTokens, roleHashLen, roleBlob, roleIgnored}[min(body, 4)]
	case TagStore:
		return [...]bodyRole{roleTag, rolePlace, roleHashLen, roleBlob, rolePrevious, roleExtra}[min(body, 5)]
	case TagEvict:
		return [...]bodyRole{roleTag, rolePlace, roleHashLen, roleBlob, roleExtra}[min(body, 4)]
	case TagAnchors:
		return [...]bodyRole{roleTag, roleShape, roleHashLen, roleNumbers, roleDigests, roleBlob, roleExtra}[min(body, 6)]
	case TagPing:
		return roleEcho
	}
	return roleIgnored
}

// fail keeps the first problem found.
func (q *Request) fail(err error) {
	if q.Problem == nil {
		q.Problem = err
	}
}

// reset makes the Request ready for the next message and keeps its memory,
// unless an unusually large ping has grown it.
func (q *Request) reset() {
	envelope, echo := q.Envelope[:0], q.Echo[:0]
	if cap(echo) > keepEcho {
		echo = nil
	}
	anchors := q.Anchors
	anchors.reset()
	*q = Request{Envelope: envelope, Echo: echo, FirstChunk: FirstChunkUnknown, Anchors: anchors}
}

// keepEcho is the largest ping buffer in bytes that an idle connection keeps:
// pings that carry a time stamp and an id stay free of allocations, and ten
// thousand connections keep at most a few MiB.
const keepEcho = 512

// foldNumTokens reads big-endian digits of num_tokens; the frame may have any
// length.
func (q *Request) foldNumTokens(p []byte, alignment uint64) {
	for _, b := range p {
		q.NumTokens = foldByte(q.NumTokens, b)
		if alignment > 0 {
			q.remainder = (q.remainder<<8 | uint64(b)) % alignment
		}
	}
}

// ParseInt reads a big-endian integer of any length as the reference does: empty
// is 0. What does not fit 64 bits reads as math.MaxUint64.
func ParseInt(b []byte) (v uint64) {
	for _, c := range b {
		v = foldByte(v, c)
	}
	return v
}

// foldByte appends one big-endian digit, saturating.
func foldByte(v uint64, b byte) uint64 {
	if v > math.MaxUint64>>8 {
		return math.MaxUint64
	}
	return v<<8 | uint64(b)
}

// keep copies what fits of p behind the bytes that the current frame has already
// put into buf.
func (q *Request) keep(buf, p []byte) {
	q.filled += copy(buf[min(q.filled, len(buf)):], p)
}

// echoHeader begins one echoed frame.
func (q *Request) echoHeader(size uint64) {
	if size > uint64(MaxPing-q.echoSize) {
		q.fail(ErrPingLen)
		q.Echo = q.Echo[:0]
	}
	if q.Problem != nil {
		return
	}
	q.echoSize += int(size)
	q.echoLast = len(q.Echo)
	q.Echo = AppendFrameHeader(q.Echo, int(size), true)
}

// endBody finishes a body frame: what it has gathered becomes a field.
func (q *Request) endBody(role bodyRole, size, alignment uint64) {
	switch role {
	case roleTag:
		if size <= uint64(maxTag) {
			q.Tag = parseTag(q.name[:q.filled])
		}
		if q.Tag == TagUnknown {
			q.fail(ErrUnknownTag)
		}
	case roleNumTokens:
		q.Unaligned = q.remainder != 0
	case rolePlace:
		if size > groupRankChunkLen {
			q.fail(ErrGroupRankLen)
			return
		}
		var err error
		if q.Rank, q.FirstChunk, err = parseGroupRank(q.scratch[:q.filled]); err != nil {
			q.fail(err)
		}
	case roleHashLen:
		q.endHashLen(size)
	case rolePrevious:
		if size != uint64(q.HashLen) {
			q.fail(ErrCutKey)
			return
		}
		q.Before = q.scratch[:q.filled]
	case roleShape:
		q.endShape(size, alignment)
	case roleNumbers:
		q.endNumbers()
	case roleDigests:
		if n := len(q.Anchors.Digests); n != 0 && n != 8*q.Anchors.Len() {
			q.fail(ErrDigests)
		}
	case roleExtra:
		q.fail(ErrExtraFrame)
	}
}

// endHashLen checks hash_len: a lookup's may have any number of digits and be 0,
// a store's and an evict's must be a u16 within bounds.
func (q *Request) endHashLen(size uint64) {
	strict := !q.Tag.asksHits()
	if q.hashLen > MaxHashLen || strict && (size != 2 || q.hashLen == 0) {
		q.fail(ErrHashLen)
		return
	}
	q.HashLen = int(q.hashLen)
}

// beginBlob takes the announced size of the blob and tells whether its hashes
// are to be handed on.
func (q *Request) beginBlob(size uint64) bool {
	if q.HashLen > 0 {
		q.NumHashes = int(size / uint64(q.HashLen))
		if !q.Tag.asksHits() && size%uint64(q.HashLen) != 0 {
			q.fail(ErrCutKey)
		}
	}
	switch {
	case q.Tag == TagAnchors:
		if q.NumHashes < q.Anchors.Len() {
			q.fail(ErrAnchorCount)
		}
	case !q.Tag.asksHits() && size == 0:
		q.fail(ErrEmptyBlob)
	}
	return q.Problem == nil
}

// finish checks at the end of a message of body frames that none is missing, and
// closes the echo.
func (q *Request) finish(body int) {
	switch q.Tag {
	case TagLookup, TagExplain, TagStore, TagEvict:
		if body < 4 {
			q.fail(ErrMissingFrame)
		}
	case TagAnchors:
		if body < 6 {
			q.fail(ErrMissingFrame)
		}
	case TagPing:
		if len(q.Echo) > 0 {
			q.Echo[q.echoLast] &^= FlagMore
		}
	case TagUnknown:
		q.fail(ErrUnknownTag)
	}
}
