package netproto

import (
	"encoding/binary"
	"fmt"
	"math"
)

// First bytes of replies that hold no hit.
const (
	StatusFailed  = 0x00 // the request was refused or failed: nothing happened
	StatusDone    = 0x01
	StatusPartial = 0x04 // the request was done in part
)

// The functions for requests take an envelope that is encoded, with its delimiter, and may be empty.
// Those for requests with a blob append all up to and including the header of its frame, so that the
// blob need not be copied: its blobLen bytes follow on the wire.

// AppendLookup appends a TagLookup.
func AppendLookup(dst, envelope []byte, numTokens uint32, hashLen, blobLen int) []byte {
	dst = appendTag(dst, envelope, TagLookup, true)
	dst = binary.BigEndian.AppendUint32(AppendFrameHeader(dst, 4, true), numTokens)
	return appendBlob(dst, hashLen, blobLen)
}

// AppendLookupFrom appends a request with the frames of a lookup_from: TagLookupFrom, TagExplain or
// TagPlan. The blob is the prompt's hashes from token start on.
func AppendLookupFrom(dst, envelope []byte, tag Tag, numTokens, start uint32, hashLen, blobLen int) []byte {
	dst = AppendFrameHeader(appendTag(dst, envelope, tag, true), 8, true)
	dst = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(dst, numTokens), start)
	return appendBlob(dst, hashLen, blobLen)
}

// AppendKeys appends a TagStore or TagEvict.
func AppendKeys(dst, envelope []byte, tag Tag, rank WireRank, hashLen, blobLen int) []byte {
	return appendBlob(appendRank(appendTag(dst, envelope, tag, true), rank, true), hashLen, blobLen)
}

// AppendRenew appends a renew. The blob is the hashes of a prompt's first tokens.
func AppendRenew(dst, envelope []byte, hashLen, blobLen int) []byte {
	return appendBlob(appendTag(dst, envelope, TagRenew, true), hashLen, blobLen)
}

// AppendResetRank appends a reset_rank.
func AppendResetRank(dst, envelope []byte, at WireRank) []byte {
	return appendRank(appendTag(dst, envelope, TagResetRank, true), at, false)
}

// AppendMaskRequest appends a request for masks: TagLoadMask, TagStoreMask or TagLookupMask.
func AppendMaskRequest(dst, envelope []byte, tag Tag, p *Prompt) []byte {
	return appendNumbers(appendTag(dst, envelope, tag, true), tag, p, false)
}

// AppendStorePrompt appends a store_prompt. The blob is the prompt's hashes from FirstHash on.
func AppendStorePrompt(dst, envelope []byte, p *Prompt, hashLen, blobLen int) []byte {
	dst = appendNumbers(appendTag(dst, envelope, TagStorePrompt, true), TagStorePrompt, p, true)
	dst = AppendFrame(dst, p.Ranks, true)
	dst = AppendFrame(dst, p.States, true)
	return appendBlob(dst, hashLen, blobLen)
}

// AppendRequest appends a request of a tag and the given frames: reset, ping, stat, pool or auth.
func AppendRequest(dst, envelope []byte, tag Tag, frames ...[]byte) []byte {
	dst = appendTag(dst, envelope, tag, len(frames) > 0)
	for i, f := range frames {
		dst = AppendFrame(dst, f, i < len(frames)-1)
	}
	return dst
}

// appendTag appends the envelope and the tag.
func appendTag(dst, envelope []byte, tag Tag, more bool) []byte {
	name := tag.String()
	dst = AppendFrameHeader(append(dst, envelope...), len(name), more)
	return append(dst, name...)
}

// appendRank appends a rank with pcp_rank.
func appendRank(dst []byte, rank WireRank, more bool) []byte {
	dst = AppendFrameHeader(dst, rankPCPLen, more)
	for _, v := range [...]uint16{rank.Group, rank.TPRank, rank.PPRank, rank.PCPRank} {
		dst = binary.BigEndian.AppendUint16(dst, v)
	}
	return dst
}

// appendNumbers appends the frame of numbers of a request.
func appendNumbers(dst []byte, tag Tag, p *Prompt, more bool) []byte {
	list := kinds[tag].fields[0].numbers
	dst = AppendFrameHeader(dst, 4*len(list), more)
	for _, n := range list {
		dst = binary.BigEndian.AppendUint32(dst, *n(p))
	}
	return dst
}

// appendBlob appends the hash_len frame and the header of the blob frame.
func appendBlob(dst []byte, hashLen, blobLen int) []byte {
	if hashLen < 0 || hashLen > math.MaxUint16 {
		panic(fmt.Sprintf("netproto: hash_len %d does not fit 16 bits", hashLen))
	}
	dst = binary.BigEndian.AppendUint16(AppendFrameHeader(dst, 2, true), uint16(hashLen))
	return AppendFrameHeader(dst, blobLen, false)
}

// AppendHit appends the reply to a lookup without tail boundaries: the hit in tokens.
func AppendHit(dst, envelope []byte, hitTokens uint32) []byte {
	return AppendTailHit(dst, envelope, hitTokens, 0)
}

// AppendTailHit appends the reply to a lookup up to its tail boundaries. As many as
// numBoundaries follow by AppendTailBoundary. (Reference: the reply from vLLM 0.29.0 on.)
func AppendTailHit(dst, envelope []byte, hitTokens uint32, numBoundaries int) []byte {
	return appendHit(append(dst, envelope...), hitTokens, numBoundaries, false)
}

// AppendPlanReply appends the reply to a plan up to its tail boundaries. As many as numBoundaries
// follow by AppendTailBoundary, and then the frame of masks by AppendFrame.
func AppendPlanReply(dst, envelope []byte, hitTokens uint32, numBoundaries int) []byte {
	dst = AppendFrame(append(dst, envelope...), []byte{StatusDone}, true)
	return appendHit(dst, hitTokens, numBoundaries, true)
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
	dst = AppendFrame(append(dst, envelope...), []byte{StatusDone}, len(payload) > 0)
	return append(dst, payload...)
}

// AppendRefusal appends a reply of StatusFailed or StatusPartial. A frame with the text follows
// unless it is empty, and then one with the details unless they are.
func AppendRefusal(dst, envelope []byte, status byte, text string, details []byte) []byte {
	dst = AppendFrame(append(dst, envelope...), []byte{status}, text != "")
	if text == "" {
		return dst
	}
	dst = append(AppendFrameHeader(dst, len(text), len(details) > 0), text...)
	if len(details) == 0 {
		return dst
	}
	return AppendFrame(dst, details, false)
}
