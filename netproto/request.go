package netproto

import (
	"bytes"
	"math"
)

// Request is one message as far as it has been read. A Reader reuses one Request for
// all messages: it and its slices are valid until the Handler's method returns.
type Request struct {
	// Tag is the kind of request.
	Tag Tag
	// Envelope is the request's frames up to and including the delimiter, encoded,
	// for the front of the reply. It is empty if there are none.
	Envelope []byte
	// NumTokens is the prompt's length in tokens, as sent with a lookup, lookup_from, explain or
	// plan request. A number over 64 bits is math.MaxUint64.
	NumTokens uint64
	// Start is the token at which a lookup_from, explain or plan begins.
	Start uint32
	// Unaligned reports whether num_tokens, of any size, is not a multiple of the
	// Reader's alignment.
	Unaligned bool
	// HashLen is the length of a hash in bytes, 0 if there are no hashes.
	HashLen int
	// NumHashes is the number of whole hashes that the blob frame announces.
	NumHashes int
	// GroupRank is the rank of a store, evict or reset_rank.
	GroupRank WireRank
	// Prompt is what a request for masks or a store_prompt says of the prompt.
	Prompt Prompt
	// Description is the JSON of a pool request.
	Description []byte
	// Token is that of an auth request, at most MaxToken bytes.
	Token []byte
	// Echo holds the further frames of a ping, encoded.
	Echo []byte
	// Problem is why the request cannot be served, nil if it can.
	Problem *Problem
}

// WireRank is a group and the ranks that hold blocks, as a store, an evict or a reset_rank names them.
// In a reset_rank 65535 stands for every group or rank.
type WireRank struct {
	Group, TPRank, PPRank, PCPRank uint16
}

// rankPCPLen is the length in bytes of a rank with pcp_rank.
const rankPCPLen = 8

// Clone returns a copy that owns its slices, for use after the Handler's method has returned. Its
// Token is not overwritten by the Reader.
func (q *Request) Clone() Request {
	c := *q
	for _, b := range [...]*[]byte{&c.Envelope, &c.Prompt.Ranks, &c.Prompt.States, &c.Description, &c.Token, &c.Echo} {
		*b = bytes.Clone(*b)
	}
	return c
}

// reset empties the Request for the next message and retains its buffers, except
// unusually large ones and that of a token, which it overwrites.
func (q *Request) reset() {
	clear(q.Token)
	*q = Request{
		Envelope: q.Envelope[:0], Echo: retain(q.Echo),
		Prompt: Prompt{Ranks: retain(q.Prompt.Ranks), States: retain(q.Prompt.States)},
	}
}

// held returns the bytes of memory of the fields that grow with what the peer sends.
func (q *Request) held() int {
	return cap(q.Envelope) + cap(q.Echo) + cap(q.Description) + cap(q.Token) + cap(q.Prompt.Ranks) + cap(q.Prompt.States)
}

// maxIdle bounds, in bytes, each gathered frame that an idle connection retains. Pings with a time
// stamp and an id do not allocate, and ten thousand connections retain under 15 MiB.
const maxIdle = 512

// retain returns b emptied, or nil if its buffer is over maxIdle.
func retain(b []byte) []byte {
	if cap(b) > maxIdle {
		return nil
	}
	return b[:0]
}

// ParseInt decodes a big-endian integer of any length, as the reference does
// (int.from_bytes). Empty is 0. What does not fit 64 bits is math.MaxUint64.
func ParseInt(b []byte) uint64 { return appendDigits(0, b) }

// appendDigits appends big-endian digits to v, saturating at math.MaxUint64.
func appendDigits(v uint64, digits []byte) uint64 {
	for _, b := range digits {
		if v > math.MaxUint64>>8 {
			return math.MaxUint64
		}
		v = v<<8 | uint64(b)
	}
	return v
}
