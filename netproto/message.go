package netproto

import "encoding/binary"

// Tag is the kind of a request, its first body frame.
type Tag uint8

// The requests.
const (
	TagUnknown Tag = iota
	TagLookup
	TagExplain
	TagReset
	TagStore
	TagEvict
	TagPing
	TagStat
	TagAnchors
)

// tagNames holds the bytes of each tag on the wire; maxTag bounds their length.
var tagNames = [...]string{
	TagUnknown: "", TagLookup: "lookup", TagExplain: "explain", TagReset: "reset",
	TagStore: "store", TagEvict: "evict", TagPing: "ping", TagStat: "stat", TagAnchors: "anchors",
}

const maxTag = len("explain")

// String returns the tag as it stands on the wire.
func (t Tag) String() string {
	if t == TagUnknown || int(t) >= len(tagNames) {
		return "unknown"
	}
	return tagNames[t]
}

// asksHits tells whether the request has the frames of a lookup.
func (t Tag) asksHits() bool { return t == TagLookup || t == TagExplain }

// parseTag maps the bytes of a first body frame to its tag.
func parseTag(b []byte) Tag {
	for t := TagLookup; int(t) < len(tagNames); t++ {
		if string(b) == tagNames[t] {
			return t
		}
	}
	return TagUnknown
}

// Status frames of the replies that carry no number.
const (
	StatusFailed = 0x00
	StatusDone   = 0x01
)

// GroupRank says where in the pool keys are stored: the group, and the ranks whose
// part of the blocks it is.
//
// TPRank is the rank that the engine's keys name: the KV shard, which is the worker's
// tensor rank divided by the number of ranks that hold equal blocks. With 4 tensor
// ranks and 2 KV heads ranks 0 and 1 hold shard 0, and 2 and 3 hold shard 1. Without
// such copies it is the tensor rank. (Reference: head_or_tp_rank in the worker's keys.)
type GroupRank struct {
	Group, TPRank, PPRank, PCPRank uint16
}

// FirstChunkUnknown is the number of a store's first chunk when it was not given.
const FirstChunkUnknown = ^uint32(0)

// Lengths of a group rank on the wire: without pcp_rank, with it, and with the number
// of the first chunk.
const (
	groupRankLen      = 6
	groupRankPCPLen   = 8
	groupRankChunkLen = 12
)

// parseGroupRank decodes a group rank frame of 6, 8 or 12 bytes.
func parseGroupRank(b []byte) (p GroupRank, firstChunk uint32, err error) {
	firstChunk = FirstChunkUnknown
	switch len(b) {
	case groupRankChunkLen:
		firstChunk = binary.BigEndian.Uint32(b[groupRankPCPLen:])
		fallthrough
	case groupRankPCPLen:
		p.PCPRank = binary.BigEndian.Uint16(b[groupRankLen:])
		fallthrough
	case groupRankLen:
		p.Group = binary.BigEndian.Uint16(b)
		p.TPRank = binary.BigEndian.Uint16(b[2:])
		p.PPRank = binary.BigEndian.Uint16(b[4:])
		return p, firstChunk, nil
	}
	return p, firstChunk, ErrGroupRankLen
}

// AppendLookup appends a lookup request up to and including the header of its
// blob frame: the blobLen bytes of the blob follow on the wire, so that they need
// not be copied. The envelope, already encoded, may be empty.
func AppendLookup(dst, envelope []byte, numTokens uint32, hashLen, blobLen int) []byte {
	return appendAsk(dst, envelope, TagLookup, numTokens, hashLen, blobLen)
}

// AppendExplain is AppendLookup for an explain request.
func AppendExplain(dst, envelope []byte, numTokens uint32, hashLen, blobLen int) []byte {
	return appendAsk(dst, envelope, TagExplain, numTokens, hashLen, blobLen)
}

func appendAsk(dst, envelope []byte, tag Tag, numTokens uint32, hashLen, blobLen int) []byte {
	dst = append(dst, envelope...)
	dst = AppendFrame(dst, []byte(tagNames[tag]), true)
	dst = binary.BigEndian.AppendUint32(AppendFrameHeader(dst, 4, true), numTokens)
	dst = binary.BigEndian.AppendUint16(AppendFrameHeader(dst, 2, true), uint16(hashLen))
	return AppendFrameHeader(dst, blobLen, false)
}

// AppendKeys appends a store or evict request up to and including the header of
// its blob frame; the blob of blobLen bytes follows on the wire.
func AppendKeys(dst, envelope []byte, tag Tag, p GroupRank, hashLen, blobLen int) []byte {
	return appendBlob(appendGroupRank(dst, envelope, tag, p, groupRankPCPLen), hashLen, blobLen, false)
}

// AppendChunks appends a store request whose group rank gives the number of the first
// chunk, up to and including the header of its blob frame. The blob follows, and
// behind it, if more is true, a frame with the key in front of the first.
func AppendChunks(dst, envelope []byte, p GroupRank, firstChunk uint32, hashLen, blobLen int, more bool) []byte {
	dst = appendGroupRank(dst, envelope, TagStore, p, groupRankChunkLen)
	dst = binary.BigEndian.AppendUint32(dst, firstChunk)
	return appendBlob(dst, hashLen, blobLen, more)
}

// appendGroupRank appends a store or evict request up to the pcp_rank of its group rank,
// whose frame has so many bytes.
func appendGroupRank(dst, envelope []byte, tag Tag, p GroupRank, size int) []byte {
	dst = append(dst, envelope...)
	dst = AppendFrame(dst, []byte(tag.String()), true)
	dst = AppendFrameHeader(dst, size, true)
	for _, v := range [...]uint16{p.Group, p.TPRank, p.PPRank, p.PCPRank} {
		dst = binary.BigEndian.AppendUint16(dst, v)
	}
	return dst
}

// appendBlob appends hash_len and the header of the blob's frame.
func appendBlob(dst []byte, hashLen, blobLen int, more bool) []byte {
	dst = binary.BigEndian.AppendUint16(AppendFrameHeader(dst, 2, true), uint16(hashLen))
	return AppendFrameHeader(dst, blobLen, more)
}

// AppendRequest appends a request that is only a tag and further frames: reset,
// ping, stat.
func AppendRequest(dst, envelope []byte, tag Tag, frames ...[]byte) []byte {
	dst = append(dst, envelope...)
	dst = AppendFrame(dst, []byte(tag.String()), len(frames) > 0)
	for i, f := range frames {
		dst = AppendFrame(dst, f, i < len(frames)-1)
	}
	return dst
}

// AppendHit appends the reply to a lookup: the hit in tokens as u32.
func AppendHit(dst, envelope []byte, hitTokens uint32) []byte {
	dst = append(dst, envelope...)
	return binary.BigEndian.AppendUint32(AppendFrameHeader(dst, 4, false), hitTokens)
}

// AppendDone appends the reply 01, followed by payload frames that are already
// encoded (none for most requests).
func AppendDone(dst, envelope, payload []byte) []byte {
	dst = append(dst, envelope...)
	dst = AppendFrame(dst, []byte{StatusDone}, len(payload) > 0)
	return append(dst, payload...)
}

// AppendFailed appends the reply 00 and, unless it is empty, a frame with the
// reason as text.
func AppendFailed(dst, envelope []byte, reason string) []byte {
	dst = append(dst, envelope...)
	dst = AppendFrame(dst, []byte{StatusFailed}, reason != "")
	if reason == "" {
		return dst
	}
	return append(AppendFrameHeader(dst, len(reason), false), reason...)
}
