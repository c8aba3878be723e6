package replay

import (
	"context"
	"errors"
)

// measure.ErrRefused marks an answer that says "not served". A [Target] returns errors
// for which errors.Is(err, measure.ErrRefused) holds when the connection is still good
// after the refusal.
var ErrRefused = errors.New("bench: refused")

// Target is one connection to the service under test. It is used by one
// goroutine at a time. Implementations must not keep the hashes or keys, nor
// read them after the call has returned: the caller overwrites them.
//
// Any error but one that wraps [ErrRefused] means that the connection cannot be
// used any more.
type Target interface {
	// Lookup asks how many leading tokens of a prompt of numTokens tokens are
	// present. hashes holds the prompt's hashes, hashLen bytes each, joined in
	// order; hashLen is 0 if there are none. It returns a number of tokens.
	Lookup(ctx context.Context, numTokens uint32, hashes []byte, hashLen int) (uint32, error)

	// Store says that consecutive blocks are present now, for group 0 and rank 0.
	// keys holds at least one hash of hashLen bytes, joined in order.
	Store(ctx context.Context, keys []byte, hashLen int) error
}

// AnchoredTarget is a Target whose Lookup is by anchors, as its Store allows. A
// replay asks it both ways and compares; nobody else may change the index then.
type AnchoredTarget interface {
	Target
	// LookupInFull is Lookup by all hashes.
	LookupInFull(ctx context.Context, numTokens uint32, hashes []byte, hashLen int) (uint32, error)
	// Sent returns the bytes that all calls of Lookup and of LookupInFull have
	// written.
	Sent() (anchored, full int64)
}
