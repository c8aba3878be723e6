package backend

import (
	"context"
	"errors"
)

// Backend is a store of blocks. Its methods are safe for concurrent use and borrow
// keys only until they return. They must return soon after ctx has ended: a service
// waits 5 ms more and then abandons the call. While 64 abandoned calls of Exists, or
// twice RemoteConfig.Workers, have not returned it makes no further ones, and while an
// abandoned change has not returned it makes no other change, which that one could undo.
type Backend interface {
	// Name is what stat shows: "mooncake", "redis".
	Name() string
	// Exists tells which keys are present, one answer a key in their order: 1 is
	// present and anything else is absent, as in the reference. A lookup may ask in
	// one call or in several.
	Exists(ctx context.Context, keys []string) ([]int, error)
	// Store adds keys. A store that only its engines fill returns ErrReadOnly.
	Store(ctx context.Context, keys []string) error
	// Evict removes keys; those that are absent are no error. It may return
	// ErrReadOnly.
	Evict(ctx context.Context, keys []string) error
	// Reset removes every block of the pool.
	Reset(ctx context.Context) error
	// Close ends the backend. Whoever made it calls this, when no service uses it
	// any longer.
	Close() error
}

var (
	// ErrReadOnly refuses a change that the store does not take from this program.
	// It says nothing about the store's health.
	ErrReadOnly = errors.New("backend: read only")
	// ErrUnavailable says that the store cannot be reached or does not serve.
	ErrUnavailable = errors.New("backend: unavailable")
	// ErrReply says that the store's answer is not one of its protocol.
	ErrReply = errors.New("backend: bad reply")
	// ErrMismatch says that something is there and is not what the configuration says:
	// it speaks another protocol, with TLS or without, wants another password, or is a
	// cluster. Asking again is of no use before one of the two is changed. It comes
	// together with ErrUnavailable or ErrReply.
	ErrMismatch = errors.New("backend: not as configured")
)
