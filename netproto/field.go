package netproto

import (
	"encoding/binary"
	"slices"
	"strconv"
)

// field is how one frame of a request is read. Each of its functions may be nil.
type field struct {
	name  string                    // in texts
	begin func(r *Reader) *Problem  // checks the length of the body, which its header has
	read  func(r *Reader, p []byte) // consumes the next bytes of the body
	end   func(r *Reader) *Problem  // checks and decodes the body

	isBlob   bool     // the body is hashes, which are passed to the Handler
	isSecret bool     // the bytes are overwritten where they were received
	numbers  []number // what a frame of numbers has
}

// The frames of requests. Those named any… are read as leniently as the reference does.
var (
	ignoredField = field{}
	tagField     = field{read: (*Reader).readScratch, end: (*Reader).endTag}

	anyNumTokens = field{name: "num_tokens", read: (*Reader).readNumTokens}
	anyHashLen   = field{name: "hash_len", read: (*Reader).readHashLen, end: (*Reader).endAnyHashLen}
	anyBlob      = field{name: "the blob", begin: (*Reader).beginAnyBlob, isBlob: true}

	lookupNumbersField = field{
		name: "the frame of numbers", begin: want("8", 8), read: (*Reader).readScratch, end: (*Reader).endLookupNumbers,
	}
	optionalHashLenField = field{name: "hash_len", begin: want("2", 2), read: (*Reader).readHashLen, end: (*Reader).endAnyHashLen}
	optionalBlobField    = field{name: "the blob", begin: (*Reader).beginWholeHashes, isBlob: true}

	hashLenField    = field{name: "hash_len", begin: want("2", 2), read: (*Reader).readHashLen, end: (*Reader).endHashLen}
	blobField       = field{name: "the blob", begin: (*Reader).beginKeys, isBlob: true}
	furtherKeyField = field{name: "the key behind the blob", begin: (*Reader).beginFurtherKey}
	rankField       = field{name: "rank", begin: want("6, 8 or 12", 6, 8, 12), read: (*Reader).readScratch, end: (*Reader).endRank}
	resetRankField  = field{name: "rank", begin: want("6 or 8", 6, 8), read: (*Reader).readScratch, end: (*Reader).endRank}

	ranksField = field{
		name: "the frame of ranks", begin: wantEntries("ranks", rankLen, MaxRanks),
		read: readInto(func(q *Request) *[]byte { return &q.Prompt.Ranks }),
	}
	statesField = field{
		name: "the frame of states", begin: wantEntries("states", stateLen, MaxStates),
		read: readInto(func(q *Request) *[]byte { return &q.Prompt.States }),
	}
	descriptionField = field{
		name: "description", begin: wantText(MaxDescription),
		read: readInto(func(q *Request) *[]byte { return &q.Description }),
	}
	tokenField = field{
		name: "token", begin: (*Reader).beginToken, isSecret: true,
		read: readInto(func(q *Request) *[]byte { return &q.Token }),
	}
	echoField = field{name: "payload", begin: (*Reader).beginEcho, read: readInto(func(q *Request) *[]byte { return &q.Echo })}
)

// numbersField returns a frame of numbers of a prompt, u32 each.
func numbersField(list ...number) *field {
	size := 4 * len(list)
	return &field{
		name: "the frame of numbers", begin: want(strconv.Itoa(size), uint64(size)),
		read: (*Reader).readScratch, end: (*Reader).endNumbers, numbers: list,
	}
}

// want returns a check of a frame's length in bytes, which must be one of those given.
func want(text string, sizes ...uint64) func(r *Reader) *Problem {
	return func(r *Reader) *Problem {
		if slices.Contains(sizes, r.frame.Size) {
			return nil
		}
		return r.wrongSize(text)
	}
}

// wantEntries returns a check of a frame of at most limit entries of size bytes each.
func wantEntries(name string, size, limit uint64) func(r *Reader) *Problem {
	return func(r *Reader) *Problem {
		switch {
		case r.frame.Size%size != 0:
			return r.wrongSize("a multiple of " + strconv.FormatUint(size, 10))
		case r.frame.Size/size > limit:
			return r.largeFrame(int(limit), name)
		}
		return nil
	}
}

// wantText returns a check of a frame of 1 to limit bytes.
func wantText(limit int) func(r *Reader) *Problem {
	return func(r *Reader) *Problem {
		switch {
		case r.frame.Size == 0:
			return r.badFrame(" is empty")
		case r.frame.Size > uint64(limit):
			return r.largeFrame(limit, "bytes")
		}
		return nil
	}
}

// readInto returns a function that gathers a frame, whose length has been checked.
func readInto(buffer func(q *Request) *[]byte) func(r *Reader, p []byte) {
	return func(r *Reader, p []byte) {
		b := buffer(&r.req)
		*b = append(*b, p...)
	}
}

// readScratch gathers a frame in scratch. What does not fit is ignored.
func (r *Reader) readScratch(p []byte) { r.filled += copy(r.scratch[r.filled:], p) }

// endTag looks up the tag, which tells how many frames may follow.
func (r *Reader) endTag() *Problem {
	name := r.scratch[:r.filled]
	if r.frame.Size <= uint64(len(name)) {
		r.req.Tag = parseTag(name)
	}
	if r.req.Tag == TagUnknown {
		return unknownRequest(name, r.frame.Size)
	}
	return r.checkMore()
}

// readNumTokens appends big-endian digits to num_tokens, and updates its remainder.
func (r *Reader) readNumTokens(p []byte) {
	q := &r.req
	q.NumTokens = appendDigits(q.NumTokens, p)
	if r.alignment > 0 {
		for _, b := range p {
			r.remainder = (r.remainder<<8 | uint64(b)) % r.alignment
		}
	}
	q.Unaligned = r.remainder != 0
}

// readHashLen appends big-endian digits to hash_len.
func (r *Reader) readHashLen(p []byte) { r.hashLen = appendDigits(r.hashLen, p) }

func (r *Reader) endAnyHashLen() *Problem {
	if r.hashLen > MaxHashLen {
		return r.badFrame(" is over 64") // hashLen may be saturated
	}
	r.req.HashLen = int(r.hashLen)
	return nil
}

func (r *Reader) endHashLen() *Problem {
	if r.hashLen == 0 {
		return r.badFrame(" is 0, want 1 to 64")
	}
	return r.endAnyHashLen()
}

// beginAnyBlob counts the hashes. A trailing partial one is ignored.
func (r *Reader) beginAnyBlob() *Problem {
	if n := r.req.HashLen; n > 0 {
		r.req.NumHashes = int(r.frame.Size / uint64(n))
	}
	return nil
}

// beginKeys counts the keys, of which there must be one, and none cut.
func (r *Reader) beginKeys() *Problem {
	if r.frame.Size == 0 {
		return r.badFrame(" is empty")
	}
	return r.beginWholeHashes()
}

// beginWholeHashes counts the hashes, of which none must be cut. There may be none.
func (r *Reader) beginWholeHashes() *Problem {
	n := uint64(r.req.HashLen)
	switch {
	case r.frame.Size == 0:
		return nil
	case n == 0:
		return r.badFrame(" is not empty, and hash_len is 0")
	case r.frame.Size%n != 0:
		return r.wrongSize("a multiple of hash_len, " + strconv.FormatUint(n, 10))
	}
	r.req.NumHashes = int(r.frame.Size / n)
	return nil
}

// beginFurtherKey checks the key after the blob of a store. It has no effect.
func (r *Reader) beginFurtherKey() *Problem {
	n := uint64(r.req.HashLen)
	return want(strconv.FormatUint(n, 10), n)(r)
}

// endRank decodes a rank of 6, 8 or 12 bytes. A missing pcp_rank is 0; the last four bytes have no effect.
func (r *Reader) endRank() *Problem {
	b, to := r.scratch[:], &r.req.GroupRank
	to.Group, to.TPRank, to.PPRank = binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:]), binary.BigEndian.Uint16(b[4:])
	if r.filled >= rankPCPLen {
		to.PCPRank = binary.BigEndian.Uint16(b[6:])
	}
	return nil
}

func (r *Reader) endNumbers() *Problem {
	for i, n := range r.field.numbers {
		*n(&r.req.Prompt) = binary.BigEndian.Uint32(r.scratch[4*i:])
	}
	return nil
}

// endLookupNumbers decodes num_tokens and the start of a lookup.
func (r *Reader) endLookupNumbers() *Problem {
	q := &r.req
	q.NumTokens = uint64(binary.BigEndian.Uint32(r.scratch[:]))
	q.Start = binary.BigEndian.Uint32(r.scratch[4:])
	q.Unaligned = r.alignment > 0 && q.NumTokens%r.alignment != 0
	return nil
}

// beginToken makes room for a token. A buffer that grows would leave copies.
func (r *Reader) beginToken() *Problem {
	if problem := wantText(MaxToken)(r); problem != nil {
		return problem
	}
	r.req.Token = make([]byte, 0, r.frame.Size)
	return nil
}

// beginEcho begins a frame of a ping, which will be a frame of the reply.
func (r *Reader) beginEcho() *Problem {
	if r.frame.Size > uint64(MaxPing-r.echoSize) {
		return r.largeFrame(MaxPing, "bytes")
	}
	r.echoSize += int(r.frame.Size)
	r.req.Echo = AppendFrameHeader(r.req.Echo, int(r.frame.Size), r.frame.More())
	return nil
}
