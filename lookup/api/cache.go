package api

import (
	"context"

	"github.com/hitline/hitline/coordinator"
)

// Hit is the answer to a lookup. Its TailBoundaries, if the pool's vLLM is 0.29.0 or newer,
// belong to the caller.
type Hit = coordinator.Hit

// PrefixCache is the index of one pool's blocks: in this process (lookup.Service) or
// behind a server (client.Client).
//
// hashes are the block hashes of a prompt, in order. A key is the last block hash of a
// chunk of a group; keys are those of consecutive chunks. Both are borrowed until the
// method returns.
//
// Lookup, Explain and Plan are from the start of the hashes on, if those have one: see
// coordinator.Hashes.From and coordinator.Coordinator.CheckStart.
//
// Up to vLLM 0.26.0 numTokens must be a multiple of the pool's scheduler block size, but for LookupPrompt.
//
// Errors are those of the implementation, see lookup.Service and client.Client. Those of a change that
// was done in part wrap ErrPartlyDone. Over a failing backend a Service returns a hit of 0 and no error. A
// Client returns an error if the server cannot be reached, and a hit of 0 with it.
//
// All methods are safe for concurrent use. They wait until ctx ends at most. Over the
// memory index of this process they do not wait.
type PrefixCache interface {
	// Lookup returns the hit of a prompt of numTokens tokens with these block hashes.
	Lookup(ctx context.Context, numTokens int64, hashes coordinator.Hashes) (Hit, error)
	// LookupPrompt is Lookup for a prompt of any number of tokens.
	LookupPrompt(ctx context.Context, numTokens int64, hashes coordinator.Hashes) (Hit, error)
	// Explain returns for each group where it ends the hit, and why. It does not count as a
	// lookup.
	Explain(ctx context.Context, numTokens int64, hashes coordinator.Hashes) (Explanation, error)
	// Plan is Lookup with the chunks to load for the hit. It counts as a lookup.
	Plan(ctx context.Context, numTokens int64, hashes coordinator.Hashes) (Plan, error)
	// LoadMask returns for each group of the pool which chunks a prompt with numHashes hashes
	// must load to be served its first tokens tokens, which are a hit.
	LoadMask(ctx context.Context, tokens int64, numHashes int) ([]GroupMask, error)
	// StoreMask returns for each group of the pool which chunks of the first tokens tokens are
	// worth storing, from the first that begins at or after token start. tokens is a multiple of
	// the pool's alignment. promptTokens is the length of the prompt, negative if it is not known.
	StoreMask(ctx context.Context, tokens, start, promptTokens int64) ([]GroupMask, error)
	// LookupMask returns for each group of the pool which chunks of the first tokens tokens a
	// lookup checks. tokens is a multiple of the pool's alignment.
	LookupMask(ctx context.Context, tokens int64) ([]GroupMask, error)
	// Store adds keys to one rank of a group.
	Store(ctx context.Context, at coordinator.GroupRank, keys coordinator.Hashes) error
	// StorePrompt stores the blocks of a prompt that the pool keeps, in all groups, on all ranks
	// that p names. hashes are the prompt's from p.FirstHash on. It returns how many chunks of
	// each store group are stored. If only parts could be the error is a *PartsError.
	StorePrompt(ctx context.Context, p PromptStore, hashes coordinator.Hashes) (stored []int64, err error)
	// Evict removes keys from one rank of a group.
	Evict(ctx context.Context, at coordinator.GroupRank, keys coordinator.Hashes) error
	// Reset removes every block of the pool.
	Reset(ctx context.Context) error
	// ResetRank removes all that a rank of a group holds. coordinator.AnyRank in a field of at
	// stands for every group or rank. What is stored there meanwhile may go or stay.
	ResetRank(ctx context.Context, at coordinator.GroupRank) error
}
