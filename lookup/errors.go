package lookup

import "errors"

var (
	// ErrUnsupported refuses a configuration that this version does not serve.
	ErrUnsupported = errors.New("lookup: not supported")
	// ErrTokens refuses a prompt of fewer than 0 tokens.
	ErrTokens = errors.New("lookup: negative number of tokens")
	// ErrGroupRank refuses a store or an evict for a group or rank outside the pool.
	ErrGroupRank = errors.New("group or rank is outside the configured pool")
	// ErrTooManyKeys refuses a request whose keys at the backend take more memory than
	// RemoteConfig.MaxKeyBytes allows one.
	ErrTooManyKeys = errors.New("too many keys: ask with fewer hashes, or configure fewer ranks and groups")
	// ErrConfig refuses a strategy that is none.
	ErrConfig = errors.New("lookup: bad configuration")
)
