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

// Lengths in bytes of a rank and of a state.
const (
	rankLen  = 6
	stateLen = 8
)

// number is one number of a Prompt.
type number func(p *Prompt) *uint32

func numTokens(p *Prompt) *uint32    { return &p.NumTokens }
func numHashes(p *Prompt) *uint32    { return &p.NumHashes }
func startToken(p *Prompt) *uint32   { return &p.StartToken }
func promptTokens(p *Prompt) *uint32 { return &p.PromptTokens }
func firstHash(p *Prompt) *uint32    { return &p.FirstHash }

// NumRanks returns the number of ranks.
func (p *Prompt) NumRanks() int { return len(p.Ranks) / rankLen }

// Rank returns rank i, in [0, NumRanks()), of group 0.
func (p *Prompt) Rank(i int) WireRank {
	b := p.Ranks[rankLen*i:]
	return WireRank{TPRank: binary.BigEndian.Uint16(b), PPRank: binary.BigEndian.Uint16(b[2:]), PCPRank: binary.BigEndian.Uint16(b[4:])}
}

// AddRank appends a rank. Its group does not count.
func (p *Prompt) AddRank(r WireRank) {
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
