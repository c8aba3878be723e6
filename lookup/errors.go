package lookup

import "errors"

// Errors of requests, which peers read as the reason of a refusal, and of configurations. Beside
// these, a request can fail with api.ErrPrompt and api.ErrNoStates, with the errors of
// package coordinator, over the memory index with index.ErrOtherHashLen and index.ErrClasses, and over a
// store with those of package backend, of the store, or of the context. Any of them can come with
// api.ErrPartlyDone.
var (
	// ErrUnsupported refuses a configuration that this version does not serve.
	ErrUnsupported = errors.New("not supported")
	// ErrTokens refuses a prompt of fewer than 0 tokens.
	ErrTokens = errors.New("a number of tokens is negative")
	// ErrGroupRank refuses a change of a group or rank outside the pool.
	ErrGroupRank = errors.New("group or rank is outside the configured pool")
	// ErrHashLen refuses hashes of other than 1 to netproto.MaxHashLen bytes.
	ErrHashLen = errors.New("hash_len is not 1 to 64")
	// ErrCutKey refuses keys that are not whole hashes.
	ErrCutKey = errors.New("the keys are not a multiple of hash_len")
	// ErrTooManyKeys refuses a request whose keys at the backend take more memory than
	// RemoteConfig.MaxKeyBytes allows one.
	ErrTooManyKeys = errors.New("too many keys: ask with fewer hashes, or configure fewer ranks and groups")
	// ErrTooManyRuns refuses masks with more than api.MaxRuns runs of true entries.
	ErrTooManyRuns = errors.New("the masks have more than 32768 runs of true entries: ask about fewer tokens")
	// ErrResetRank refuses a reset of single ranks over a backend, which cannot list their keys.
	ErrResetRank = errors.New("a rank cannot be reset over a store: let its keys expire there, or reset the whole pool")
	// ErrHitRange is the error of a hit whose numbers do not fit the wire's 32 bits, for
	// pools whose hits have tail boundaries.
	ErrHitRange = errors.New("the hit does not fit 32 bits")
)
