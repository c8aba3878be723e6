package netproto

import "math"

// Request is one message as far as it has been read. A Reader reuses one Request for
// all messages: it and its slices are valid until the Handler's method returns.
type Request struct {
	// Tag is the kind of request.
	Tag Tag
	// Envelope is the request's frames up to and including the delimiter, encoded,
	// for the front of the reply. It is empty if there are none.
	Envelope []byte
	// NumTokens is the prompt's length in tokens, as sent with a lookup, explain or
	// plan request. A number over 64 bits is math.MaxUint64.
	NumTokens uint64
	// Unaligned reports whether num_tokens, of any size, is not a multiple of the
	// Reader's alignment.
	Unaligned bool
	// HashLen is the length of a hash in bytes, 0 if there are no hashes.
	HashLen int
	// NumHashes is the number of whole hashes that the blob frame announces.
	NumHashes int
	// GroupRank is the group rank of a store or evict. In a reset_rank AnyRank stands for
	// every group or rank.
	GroupRank Rank
	// Prompt is what a request for masks or a store_prompt says of the prompt.
	Prompt Prompt
	// Description is the JSON of a pool request.
	Description []byte
	// HoldersQuery is the JSON of a holders request.
	HoldersQuery []byte
	// Token is that of an auth request, at most MaxToken bytes.
	Token []byte
	// Echo holds the further frames of a ping, encoded.
	Echo []byte
	// Problem is the reason why the request cannot be served, nil if it can.
	Problem error

	name      [maxTag + 1]byte       // the tag, cut to one byte more than the longest
	scratch   [maxPromptNumbers]byte // a group rank, or numbers
	filled    int                    // bytes of the current frame in name or scratch
	hashLen   uint64                 // hash_len as sent, saturated at 64 bits
	remainder uint64                 // num_tokens modulo the alignment
	echoLast  int                    // offset in Echo of the last frame's header
	echoSize  int                    // payload bytes of a ping
	begun     bool                   // Begin was called
}

// bodyRole is the meaning of a body frame.
type bodyRole uint8

const (
	roleIgnored bodyRole = iota
	roleTag
	roleNumTokens
	roleHashLen
	roleGroupRank
	roleBlob
	roleMoreKey // one more key of a store, which has no effect
	rolePromptNumbers
	roleRanks
	roleStates
	roleEcho
	roleDescription
	roleToken
	roleHoldersQuery
	roleExtra // one frame too many for a strict request
)

// roleOf returns the role of a body frame, given its index in the body.
func (q *Request) roleOf(body int) bodyRole {
	if body == 0 {
		return roleTag
	}
	switch q.Tag {
	case TagLookup, TagExplain, TagPlan:
		return [...]bodyRole{roleTag, roleNumTokens, roleHashLen, roleBlob, roleIgnored}[min(body, 4)]
	case TagHolders:
		return [...]bodyRole{roleTag, roleHoldersQuery, roleHashLen, roleBlob, roleIgnored}[min(body, 4)]
	case TagStore:
		return [...]bodyRole{roleTag, roleGroupRank, roleHashLen, roleBlob, roleMoreKey, roleExtra}[min(body, 5)]
	case TagEvict:
		return [...]bodyRole{roleTag, roleGroupRank, roleHashLen, roleBlob, roleExtra}[min(body, 4)]
	case TagLoadMask, TagStoreMask, TagLookupMask:
		return [...]bodyRole{roleTag, rolePromptNumbers, roleExtra}[min(body, 2)]
	case TagStorePrompt:
		return [...]bodyRole{roleTag, rolePromptNumbers, roleRanks, roleStates, roleHashLen, roleBlob, roleExtra}[min(body, 6)]
	case TagResetRank:
		return [...]bodyRole{roleTag, roleGroupRank, roleExtra}[min(body, 2)]
	case TagPing:
		return roleEcho
	case TagPool:
		return [...]bodyRole{roleTag, roleDescription, roleExtra}[min(body, 2)]
	case TagAuth:
		return [...]bodyRole{roleTag, roleToken, roleExtra}[min(body, 2)]
	}
	return roleIgnored
}

// fail sets the problem, unless there is one already.
func (q *Request) fail(err error) {
	if q.Problem == nil {
		q.Problem = err
	}
}

// reset empties the Request for the next message and retains its buffers, except
// unusually large ones and that of a token, which it overwrites.
func (q *Request) reset() {
	clear(q.Token)
	envelope, echo := q.Envelope[:0], q.Echo[:0]
	if cap(echo) > maxIdleEcho {
		echo = nil
	}
	prompt, query := q.Prompt, retainSmall(q.HoldersQuery)
	prompt.reset()
	*q = Request{Envelope: envelope, Echo: echo, Prompt: prompt, HoldersQuery: query}
}

// held returns the bytes of memory of the fields that grow with what the peer sends.
func (q *Request) held() int {
	p := &q.Prompt
	return cap(q.Envelope) + cap(q.Echo) + cap(q.Description) + cap(q.HoldersQuery) + cap(q.Token) + cap(p.Ranks) + cap(p.States)
}

// maxIdleEcho bounds Echo, in bytes, that an idle connection retains. Pings with a time
// stamp and an id do not allocate, and ten thousand connections retain under 5 MiB.
const maxIdleEcho = 512

// maxIdleFrame bounds, in bytes, each of the other gathered frames that an idle connection
// retains.
const maxIdleFrame = 4 << 10

// retainSmall returns b emptied, or nil if its buffer is over maxIdleFrame.
func retainSmall(b []byte) []byte {
	if cap(b) > maxIdleFrame {
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

// foldNumTokens appends big-endian digits to num_tokens, whose frame may have any
// length, and updates its remainder.
func (q *Request) foldNumTokens(p []byte, alignment uint64) {
	for _, b := range p {
		q.NumTokens = foldByte(q.NumTokens, b)
		if alignment > 0 {
			q.remainder = (q.remainder<<8 | uint64(b)) % alignment
		}
	}
}

// ParseInt decodes a big-endian integer of any length, as the reference does
// (int.from_bytes). Empty is 0. What does not fit 64 bits is math.MaxUint64.
func ParseInt(b []byte) (v uint64) {
	for _, c := range b {
		v = foldByte(v, c)
	}
	return v
}

// foldByte appends one big-endian digit to v, saturating at math.MaxUint64.
func foldByte(v uint64, b byte) uint64 {
	if v > math.MaxUint64>>8 {
		return math.MaxUint64
	}
	return v<<8 | uint64(b)
}

// fill copies p behind the bytes of the current frame in buf. What does not fit is
// ignored.
func (q *Request) fill(buf, p []byte) {
	q.filled += copy(buf[min(q.filled, len(buf)):], p)
}

// echoHeader begins one frame of Echo, of size bytes.
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

// endBody ends a body frame of size bytes: it decodes what was gathered into fields.
func (q *Request) endBody(role bodyRole, size uint64) {
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
	case roleGroupRank:
		if size > groupRankLongLen || size > groupRankPCPLen && q.Tag == TagResetRank {
			q.fail(ErrGroupRankLen)
			return
		}
		var err error
		if q.GroupRank, err = parseGroupRank(q.scratch[:q.filled]); err != nil {
			q.fail(err)
		}
	case roleHashLen:
		q.endHashLen(size)
	case roleMoreKey:
		if size != uint64(q.HashLen) {
			q.fail(ErrCutKey)
		}
	case rolePromptNumbers:
		q.endPromptNumbers(size)
	case roleRanks:
		if len(q.Prompt.Ranks)%rankLen != 0 {
			q.fail(ErrRanks)
		}
	case roleStates:
		if len(q.Prompt.States)%stateLen != 0 {
			q.fail(ErrStates)
		}
	case roleDescription:
		if size == 0 || size > MaxDescription {
			q.fail(ErrDescription)
		}
	case roleHoldersQuery:
		if size == 0 || size > MaxHoldersQuery {
			q.fail(ErrHoldersQuery)
		}
	case roleToken:
		if size == 0 || size > MaxToken {
			q.fail(ErrToken)
		}
	case roleExtra:
		q.fail(ErrExtraFrame)
	}
}

// endHashLen checks hash_len, whose frame has size bytes. That of a lookup may have any
// size and be 0; all others must be a u16, and not 0 except that of a holders request.
func (q *Request) endHashLen(size uint64) {
	strict := !q.Tag.hasLookupFrames()
	if q.hashLen > MaxHashLen || strict && (size != 2 || q.hashLen == 0 && q.Tag != TagHolders) {
		q.fail(ErrHashLen)
		return
	}
	q.HashLen = int(q.hashLen)
}

// beginBlob checks the size in bytes of the blob, as its header has it, and reports whether
// the request can be served so far.
func (q *Request) beginBlob(size uint64) bool {
	if q.HashLen > 0 {
		q.NumHashes = int(size / uint64(q.HashLen))
		if !q.Tag.hasLookupFrames() && size%uint64(q.HashLen) != 0 {
			q.fail(ErrCutKey)
		}
	}
	switch {
	case q.Tag == TagHolders: // a prompt may have no whole block
		if size > 0 && q.HashLen == 0 {
			q.fail(ErrHashLen)
		}
	case !q.Tag.hasLookupFrames() && size == 0:
		q.fail(ErrEmptyBlob)
	}
	return q.Problem == nil
}

// leastFrames is how many body frames a request has at least.
var leastFrames = [...]int{
	TagLookup: 4, TagExplain: 4, TagPlan: 4, TagStore: 4, TagEvict: 4, TagPool: 2,
	TagLoadMask: 2, TagStoreMask: 2, TagLookupMask: 2, TagStorePrompt: 6, TagResetRank: 2, TagAuth: 2, TagHolders: 4,
}

// finish ends a message of the given number of body frames: it checks that none is
// missing, and ends the last frame of Echo.
func (q *Request) finish(body int) {
	if body < leastFrames[q.Tag] {
		q.fail(ErrMissingFrame)
	}
	switch q.Tag {
	case TagPing:
		if len(q.Echo) > 0 {
			q.Echo[q.echoLast] &^= flagMore
		}
	case TagUnknown:
		q.fail(ErrUnknownTag)
	}
}
