package client

import (
	"fmt"
	"math"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/netproto"
)

// request is one request of a client. It is encoded when it is written.
type request struct {
	tag       netproto.Tag
	numTokens uint32
	start     uint32                // token at which a lookup begins
	hashLen   int                   // bytes
	rank      coordinator.GroupRank // of TagStore, TagEvict and TagResetRank
	blob      []byte                // hashes or keys, joined, a description or a token; borrowed from the caller
	prompt    *netproto.Prompt      // of TagStorePrompt and requests for masks
}

// appendHead appends the encoded request without its blob.
func (r *request) appendHead(dst, envelope []byte) []byte {
	switch r.tag {
	case netproto.TagLookup:
		return netproto.AppendLookup(dst, envelope, r.numTokens, r.hashLen, len(r.blob))
	case netproto.TagLookupFrom, netproto.TagExplain, netproto.TagPlan:
		return netproto.AppendLookupFrom(dst, envelope, r.tag, r.numTokens, r.start, r.hashLen, len(r.blob))
	case netproto.TagRenew:
		return netproto.AppendRenew(dst, envelope, r.hashLen, len(r.blob))
	case netproto.TagLoadMask, netproto.TagStoreMask, netproto.TagLookupMask:
		return netproto.AppendMaskRequest(dst, envelope, r.tag, r.prompt)
	case netproto.TagStore, netproto.TagEvict:
		return netproto.AppendKeys(dst, envelope, r.tag, netproto.WireRank(r.rank), r.hashLen, len(r.blob))
	case netproto.TagStorePrompt:
		return netproto.AppendStorePrompt(dst, envelope, r.prompt, r.hashLen, len(r.blob))
	case netproto.TagResetRank:
		return netproto.AppendResetRank(dst, envelope, netproto.WireRank(r.rank))
	case netproto.TagPool, netproto.TagAuth:
		dst = netproto.AppendFrame(append(dst, envelope...), []byte(r.tag.String()), true)
		return netproto.AppendFrameHeader(dst, len(r.blob), false)
	}
	return netproto.AppendRequest(dst, envelope, r.tag)
}

// changesNothing reports whether the request only asks.
func (r *request) changesNothing() bool {
	switch r.tag {
	case netproto.TagLookup, netproto.TagLookupFrom, netproto.TagExplain, netproto.TagPlan, netproto.TagPing, netproto.TagStat,
		netproto.TagLoadMask, netproto.TagStoreMask, netproto.TagLookupMask:
		return true
	}
	return false
}

// lookupRequest returns a lookup, a lookup_from if the hashes have a start.
func lookupRequest(numTokens int64, hashes coordinator.Hashes) (request, error) {
	if hashes.Start() != 0 {
		return hashesRequest(netproto.TagLookupFrom, numTokens, hashes)
	}
	return hashesRequest(netproto.TagLookup, numTokens, hashes)
}

// hashesRequest returns a lookup, a lookup_from, an explain or a plan. It returns ErrRequest if a
// number does not fit its field.
func hashesRequest(tag netproto.Tag, numTokens int64, hashes coordinator.Hashes) (request, error) {
	if n := hashes.HashLen(); n > math.MaxUint16 {
		return request{}, fmt.Errorf("%w: hash length %d does not fit 16 bits", ErrRequest, n)
	}
	if numTokens < 0 || numTokens > math.MaxUint32 {
		return request{}, fmt.Errorf("%w: %d tokens do not fit 32 bits", ErrRequest, numTokens)
	}
	return request{tag: tag, numTokens: uint32(numTokens), start: uint32(hashes.Start()), hashLen: hashes.HashLen(), blob: hashes.Blob()}, nil
}

// checkKeys returns ErrRequest unless keys is a whole number of hashes.
func checkKeys(keys coordinator.Hashes) error {
	if n := keys.HashLen(); n < 1 || n > netproto.MaxHashLen || len(keys.Blob())%n != 0 {
		return fmt.Errorf("%w: %d bytes are not a whole number of hashes of %d bytes (1 to %d)",
			ErrRequest, len(keys.Blob()), n, netproto.MaxHashLen)
	}
	return nil
}
