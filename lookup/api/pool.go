package api

import "github.com/hitline/hitline/coordinator"

// Pool is a pool as a server serves it. It is the reply to a pool request, in JSON.
type Pool struct {
	Name   string `json:"name"`
	Digest string `json:"digest"` // of Pool with its defaults: SHA-256 in hex
	VLLM   string `json:"vllm"`   // the releases that the pool fits, separated by commas
	// Alignment, in tokens: hits are multiples of it.
	Alignment int64       `json:"alignment"`
	Groups    []PoolGroup `json:"groups"` // the store groups
	HashLen   int         `json:"hash_len,omitempty"`
	// TailBoundaries says whether hits have tail boundaries.
	TailBoundaries bool   `json:"tail_boundaries"`
	Backend        string `json:"backend"`
	// LeaseMS is for how many milliseconds after a lookup the store keeps a block that it has found, 0 if that is not known.
	LeaseMS int64 `json:"lease_ms,omitempty"`
	// BackendTimeoutMS is after how many milliseconds a lookup over a store that does not answer is a hit of 0. A client
	// that waits for less takes the store's failure for the server's. 0 over memory.
	BackendTimeoutMS int64 `json:"backend_timeout_ms,omitempty"`
	// Renew is auto if the server renews for engines that only load, always if for those that save, too, and
	// missing if for none: see lookup.Service.Renew.
	Renew string `json:"renew,omitempty"`
	// PrefixesSHA256 is that of the key prefixes of all groups and ranks in the order in which
	// a lookup asks for them, joined by line feeds, in hex.
	PrefixesSHA256 string           `json:"prefixes_sha256"`
	Pool           coordinator.Pool `json:"pool"` // with its defaults
	// ResetRefused is why a reset by this peer would be refused, empty if it would not.
	ResetRefused string `json:"reset_refused,omitempty"`
}

// PoolGroup is a store group of a Pool.
type PoolGroup struct {
	Kind      coordinator.Kind `json:"kind"`
	BlockSize int              `json:"block_size"` // tokens
	Stride    int              `json:"stride"`     // hashes in a block
	Ranks     int              `json:"ranks"`      // that must hold a block
	// KeyPrefix is the text before the @ and the hash in the keys of the first rank.
	KeyPrefix string `json:"key_prefix"`
}
