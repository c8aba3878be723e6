package api

import (
	"errors"

	"github.com/hitline/hitline/coordinator"
)

// PromptStore says what of a prompt is stored, and where. Which of its blocks those are the
// rules of the pool decide: those that coordinator.Coordinator.StoredChunks names.
type PromptStore struct {
	// NumTokens is how many leading tokens of the prompt have been computed. It is rounded
	// down to a multiple of the pool's alignment.
	NumTokens int64
	// StartToken is the token up to which the prompt has been stored before: blocks that end
	// there or before are left out, one that it cuts is stored. It is rounded down like
	// NumTokens, so it may be the NumTokens of the store before.
	StartToken int64
	// PromptTokens is the length of the whole prompt, 0 if it is unknown. If it is known, pools
	// with a retention interval also keep the blocks that a repeat of the prompt needs.
	PromptTokens int64
	// FirstHash is the number, in the prompt, of the first hash that is given.
	FirstHash int
	// Ranks hold the blocks, as their keys name them. Their Group does not count. Empty means
	// all ranks of each group. A group leaves out the ranks that it does not have.
	Ranks []coordinator.GroupRank
	// States are the mamba states to be stored. From vLLM 0.29.0 on each mamba group needs one.
	States []State
}

// State is a mamba state: what a mamba group keeps of the tokens up to one of them.
type State struct {
	Group int // store group
	// Tokens is where the state ends, a multiple of the hash block size. 0 says that the group
	// has none.
	Tokens int64
}

// Errors. Their texts have no prefix: peers read them, as the reason of a refusal.
var (
	// ErrPrompt refuses a store of a prompt that does not fit the pool, or lacks hashes.
	// Nothing is stored.
	ErrPrompt = errors.New("the prompt cannot be stored")
	// ErrNoStates refuses a store of a prompt that names no state for a mamba group. Nothing
	// is stored.
	ErrNoStates = errors.New("from vLLM 0.29.0 on a mamba group stores the states that the engine names")
)
