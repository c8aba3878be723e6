package netproto

import "encoding/binary"

// First frames of replies that hold no hit.
const (
	StatusFailed = 0x00 // the request was refused or failed
	StatusDone   = 0x01
)

// AppendLookup appends a lookup request up to and including the header of its blob
// frame. The blob of blobLen bytes follows on the wire, so it need not be copied.
// envelope is encoded, with its delimiter, and may be empty.
func AppendLookup(dst, envelope []byte, numTokens uint32, hashLen, blobLen int) []byte {
	return appendLookup(dst, envelope, TagLookup, numTokens, hashLen, blobLen)
}

// AppendExplain appends an explain request as AppendLookup does a lookup.
func AppendExplain(dst, envelope []byte, numTokens uint32, hashLen, blobLen int) []byte {
	return appendLookup(dst, envelope, TagExplain, numTokens, hashLen, blobLen)
}

// AppendPlan appends a plan request as AppendLookup does a lookup.
func AppendPlan(dst, envelope []byte, numTokens uint32, hashLen, blobLen int) []byte {
	return appendLookup(dst, envelope, TagPlan, numTokens, hashLen, blobLen)
}

// appendLookup appends a request with the frames of a lookup, as AppendLookup does.
func appendLookup(dst, envelope []byte, tag Tag, numTokens uint32, hashLen, blobLen int) []byte {
	dst = append(dst, envelope...)
	dst = AppendFrame(dst, []byte(tagNames[tag]), true)
	dst = binary.BigEndian.AppendUint32(AppendFrameHeader(dst, 4, true), numTokens)
	dst = binary.BigEndian.AppendUint16(AppendFrameHeader(dst, 2, true), uint16(hashLen))
	return AppendFrameHeader(dst, blobLen, false)
}

// AppendHolders appends a holders request, whose JSON is given, up to and including the header of
// its blob frame. The blob of blobLen bytes follows on the wire.
func AppendHolders(dst, envelope, query []byte, hashLen, blobLen int) []byte {
	dst = append(dst, envelope...)
	dst = AppendFrame(dst, []byte(TagHolders.String()), true)
	return appendBlob(AppendFrame(dst, query, true), hashLen, blobLen)
}

// AppendKeys appends a store or evict request up to and including the header of its
// blob frame. The blob of blobLen bytes follows on the wire.
func AppendKeys(dst, envelope []byte, tag Tag, rank Rank, hashLen, blobLen int) []byte {
	dst = append(dst, envelope...)
	dst = AppendFrame(dst, []byte(tag.String()), true)
	return appendBlob(appendRank(dst, rank, true), hashLen, blobLen)
}

// appendRank appends a group rank frame.
func appendRank(dst []byte, rank Rank, more bool) []byte {
	dst = AppendFrameHeader(dst, groupRankPCPLen, more)
	for _, v := range [...]uint16{rank.Group, rank.TPRank, rank.PPRank, rank.PCPRank} {
		dst = binary.BigEndian.AppendUint16(dst, v)
	}
	return dst
}

// appendBlob appends the hash_len frame and the header of the blob frame.
func appendBlob(dst []byte, hashLen, blobLen int) []byte {
	dst = binary.BigEndian.AppendUint16(AppendFrameHeader(dst, 2, true), uint16(hashLen))
	return AppendFrameHeader(dst, blobLen, false)
}

// AppendRequest appends a request of a tag and the given frames: reset, ping or stat.
func AppendRequest(dst, envelope []byte, tag Tag, frames ...[]byte) []byte {
	dst = append(dst, envelope...)
	dst = AppendFrame(dst, []byte(tag.String()), len(frames) > 0)
	for i, f := range frames {
		dst = AppendFrame(dst, f, i < len(frames)-1)
	}
	return dst
}

// AppendHit appends the reply to a lookup: the hit in tokens.
func AppendHit(dst, envelope []byte, hitTokens uint32) []byte {
	return AppendTailHit(dst, envelope, hitTokens, 0)
}

// AppendTailHit appends the reply to a lookup up to its tail boundaries. As many as
// numBoundaries follow by AppendTailBoundary. (Reference: the reply from vLLM 0.29.0 on.)
func AppendTailHit(dst, envelope []byte, hitTokens uint32, numBoundaries int) []byte {
	return appendHit(append(dst, envelope...), hitTokens, numBoundaries, false)
}

// appendHit appends the frame of a hit up to its tail boundaries.
func appendHit(dst []byte, hitTokens uint32, numBoundaries int, more bool) []byte {
	dst = AppendFrameHeader(dst, hitLen+tailBoundaryLen*numBoundaries, more)
	return binary.BigEndian.AppendUint32(dst, hitTokens)
}

// AppendTailBoundary appends one tail boundary: group, a store group, has its last block of
// the hit at tokens.
func AppendTailBoundary(dst []byte, group, tokens uint32) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(dst, group), tokens)
}

// ParseTailBoundaries calls yield with each tail boundary of a reply to a lookup. It returns
// false if the frame is neither a hit alone, of any length up to 8 bytes, nor a hit of 4
// bytes with whole boundaries.
func ParseTailBoundaries(frame []byte, yield func(group, tokens uint32)) bool {
	if len(frame) <= tailBoundaryLen {
		return true
	}
	rest := frame[hitLen:]
	if len(rest)%tailBoundaryLen != 0 {
		return false
	}
	for ; len(rest) > 0; rest = rest[tailBoundaryLen:] {
		yield(binary.BigEndian.Uint32(rest), binary.BigEndian.Uint32(rest[4:]))
	}
	return true
}

// Lengths in bytes of the parts of a reply to a lookup.
const (
	hitLen          = 4
	tailBoundaryLen = 8
)

// AppendDone appends the reply 01 and the frames of payload, which are encoded; payload
// may be empty.
func AppendDone(dst, envelope, payload []byte) []byte {
	dst = append(dst, envelope...)
	dst = AppendFrame(dst, []byte{StatusDone}, len(payload) > 0)
	return append(dst, payload...)
}

// AppendFailed appends the reply 00 and, unless reason is empty, a frame with its text.
func AppendFailed(dst, envelope []byte, reason string) []byte {
	return AppendRefused(dst, envelope, reason, nil)
}

// AppendRefused is AppendFailed with a further frame behind the reason, unless details is
// empty.
func AppendRefused(dst, envelope []byte, reason string, details []byte) []byte {
	dst = append(dst, envelope...)
	dst = AppendFrame(dst, []byte{StatusFailed}, reason != "")
	if reason == "" {
		return dst
	}
	dst = append(AppendFrameHeader(dst, len(reason), len(details) > 0), reason...)
	if len(details) > 0 {
		dst = AppendFrame(dst, details, false)
	}
	return dst
}
