package netproto

import "encoding/binary"

// Prompt is what a request for masks, or a store_prompt, says of its prompt. The numbers are
// tokens and counts of hashes; those that the request does not have are 0. In a Request the
// slices are valid until the Handler's method returns.
type Prompt struct {
	// NumTokens is how many leading tokens the request is about.
	NumTokens uint32
	// NumHashes is how many hashes the prompt has. Of load_mask.
	NumHashes uint32
	// StartToken is the token up to which chunks have been stored before. Of store_mask and
	// store_prompt.
	StartToken uint32
	// PromptTokens is the length of the prompt, PromptTokensUnknown if it is not known. Of
	// store_mask and store_prompt.
	PromptTokens uint32
	// FirstHash is the number of the blob's first hash. Of store_prompt.
	FirstHash uint32
	// Ranks are those that hold the chunks: tp_rank, pp_rank and pcp_rank, u16 each. Empty
	// means all. Of store_prompt.
	Ranks []byte
	// States are the mamba states to be stored: group u32 and the token at which each ends,
	// u32. Of store_prompt.
	States []byte
}

// PromptTokensUnknown is the PromptTokens of a request that does not give it.
const PromptTokensUnknown = ^uint32(0)

// Lengths in bytes of a rank and of a state, and of the longest frame of numbers.
const (
	rankLen          = 6
	stateLen         = 8
	maxPromptNumbers = 16
)

// numbers returns the n numbers of a request, in their order on the wire.
func (p *Prompt) numbers(tag Tag) (fields [4]*uint32, n int) {
	switch tag {
	case TagLoadMask:
		return [4]*uint32{&p.NumTokens, &p.NumHashes}, 2
	case TagStoreMask:
		return [4]*uint32{&p.NumTokens, &p.StartToken, &p.PromptTokens}, 3
	case TagLookupMask:
		return [4]*uint32{&p.NumTokens}, 1
	}
	return [4]*uint32{&p.NumTokens, &p.StartToken, &p.PromptTokens, &p.FirstHash}, 4
}

// reset empties the prompt for the next request and retains small buffers.
func (p *Prompt) reset() {
	*p = Prompt{Ranks: retainSmall(p.Ranks), States: retainSmall(p.States)}
}

// endPromptNumbers decodes the frame of numbers, whose size in bytes is given, from scratch.
func (q *Request) endPromptNumbers(size uint64) {
	fields, n := q.Prompt.numbers(q.Tag)
	if size != uint64(4*n) {
		q.fail(ErrPromptLen)
		return
	}
	for i, field := range fields[:n] {
		*field = binary.BigEndian.Uint32(q.scratch[4*i:])
	}
}

// NumRanks returns the number of ranks.
func (p *Prompt) NumRanks() int { return len(p.Ranks) / rankLen }

// Rank returns rank i, in [0, NumRanks()), of group 0.
func (p *Prompt) Rank(i int) Rank {
	b := p.Ranks[rankLen*i:]
	return Rank{TPRank: binary.BigEndian.Uint16(b), PPRank: binary.BigEndian.Uint16(b[2:]), PCPRank: binary.BigEndian.Uint16(b[4:])}
}

// AddRank appends a rank. Its group does not count.
func (p *Prompt) AddRank(r Rank) {
	for _, v := range [...]uint16{r.TPRank, r.PPRank, r.PCPRank} {
		p.Ranks = binary.BigEndian.AppendUint16(p.Ranks, v)
	}
}

// NumStates returns the number of states.
func (p *Prompt) NumStates() int { return len(p.States) / stateLen }

// State returns the group of state i, in [0, NumStates()), and the token at which it ends.
func (p *Prompt) State(i int) (group, tokens uint32) {
	b := p.States[stateLen*i:]
	return binary.BigEndian.Uint32(b), binary.BigEndian.Uint32(b[4:])
}

// AddState appends the state of a group that ends at a token.
func (p *Prompt) AddState(group, tokens uint32) {
	p.States = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(p.States, group), tokens)
}

// AppendMaskRequest appends a request for masks: TagLoadMask, TagStoreMask or TagLookupMask.
func AppendMaskRequest(dst, envelope []byte, tag Tag, p *Prompt) []byte {
	return appendPromptNumbers(dst, envelope, tag, p, false)
}

// AppendStorePrompt appends a store_prompt up to and including the header of its blob frame.
// The blob of blobLen bytes follows on the wire: the prompt's hashes from FirstHash on.
func AppendStorePrompt(dst, envelope []byte, p *Prompt, hashLen, blobLen int) []byte {
	dst = appendPromptNumbers(dst, envelope, TagStorePrompt, p, true)
	dst = AppendFrame(dst, p.Ranks, true)
	dst = AppendFrame(dst, p.States, true)
	return appendBlob(dst, hashLen, blobLen)
}

// appendPromptNumbers appends the tag and the frame of numbers.
func appendPromptNumbers(dst, envelope []byte, tag Tag, p *Prompt, more bool) []byte {
	dst = append(dst, envelope...)
	dst = AppendFrame(dst, []byte(tag.String()), true)
	fields, n := p.numbers(tag)
	dst = AppendFrameHeader(dst, 4*n, more)
	for _, field := range fields[:n] {
		dst = binary.BigEndian.AppendUint32(dst, *field)
	}
	return dst
}

// AppendResetRank appends a reset_rank request. AnyRank stands for every group or rank.
func AppendResetRank(dst, envelope []byte, at Rank) []byte {
	dst = append(dst, envelope...)
	dst = AppendFrame(dst, []byte(TagResetRank.String()), true)
	return appendRank(dst, at, false)
}
