package backend

import (
	"context"
	"errors"
	"time"
)

// Keys are the keys of one call of Exists. They do not change, and are safe for concurrent use.
type Keys interface {
	Len() int
	// Append appends the text of key i.
	Append(dst []byte, i int) []byte
	// End returns how many of the first keys still matter if key i is absent. It is above i, and at
	// most Len.
	End(i int) int
	// Strings returns the text of all keys. The caller must not change the slice.
	Strings() []string
}

// KeyList is Keys of which all matter.
type KeyList []string

// Len implements Keys.
func (k KeyList) Len() int { return len(k) }

// Append implements Keys.
func (k KeyList) Append(dst []byte, i int) []byte { return append(dst, k[i]...) }

// End implements Keys.
func (k KeyList) End(int) int { return len(k) }

// Strings implements Keys.
func (k KeyList) Strings() []string { return k }

// Backend is a remote store of blocks. Its methods must be safe for concurrent use. Those
// that change the store borrow keys: they must not read them after they have returned.
//
// A method must return soon after its context ends, but a change that the store has been sent only
// when it can no longer take effect, as far as can be known. A lookup waits until Exists has returned. The
// service waits for a change until 5 ms after its context has ended, and then abandons it. It starts no other change until
// the abandoned one has returned, since that could undo it.
type Backend interface {
	// Name returns the name that stat shows, such as "mooncake" or "redis".
	Name() string
	// Exists returns one answer for each key, in the order of keys. 1 means present; every
	// other number means absent, as in the reference. If key i is absent, it may leave out the
	// keys from keys.End(i) on. Another number of answers fails the lookup. A lookup may need one
	// call or several.
	//
	// With peek nobody is about to load the keys: the store leases none if it can, and what it finds may be gone at once.
	Exists(ctx context.Context, keys Keys, peek bool) ([]int, error)
	// Store adds keys. It returns ErrReadOnly if only engines may fill the store.
	Store(ctx context.Context, keys []string) error
	// Evict removes keys. Absent keys are no error. It may return ErrReadOnly.
	Evict(ctx context.Context, keys []string) error
	// Reset removes every block of the pool. It may return ErrReadOnly.
	Reset(ctx context.Context) error
	// CheckReset returns the error with which Reset would refuse, nil if Reset would ask the store.
	CheckReset() error
	// Lease returns what is known now of how long the store keeps what Exists has found. It asks nobody.
	Lease() Lease
	// MaxKeys returns about how many keys like those there the store has room for, 0 if that is not known.
	MaxKeys(ctx context.Context) (int64, error)
	// Generation grows whenever keys may have gone that none of the backend's own calls has removed: another leader
	// or process answers, somebody has emptied the store, a connection was lost while a call was on it, or none can be
	// made. A connection that was
	// found to have ended before the first byte of a call was sent is no reason, if the next one is to the same process.
	// It asks nobody, and does not wait.
	Generation() uint64
	// Failure returns why the store cannot be reached, nil if it can as far as is known, also between calls. It asks
	// nobody, and does not wait.
	Failure() error
	// Close releases the backend. Its creator calls it when no service uses the backend any
	// longer.
	Close() error
}

// Plain is what a Backend embeds that tells nothing of its store. It has no lease, refuses no Reset, and knows neither
// how large the store is nor when keys go or why it cannot be reached.
type Plain struct{}

// CheckReset implements Backend.
func (Plain) CheckReset() error { return nil }

// Lease implements Backend.
func (Plain) Lease() Lease { return Lease{} }

// MaxKeys implements Backend.
func (Plain) MaxKeys(context.Context) (int64, error) { return 0, nil }

// Generation implements Backend.
func (Plain) Generation() uint64 { return 0 }

// Failure implements Backend.
func (Plain) Failure() error { return nil }

// Lease is how long a store keeps a block that Exists has found.
type Lease struct {
	// Duration is for how long at least: as configured, else Stated, else the shortest default of such stores. 0 for
	// a store without leases.
	Duration time.Duration
	// Stated is what the store itself has said, 0 before. It does not say whether the store has groups.
	Stated time.Duration
}

var (
	// ErrReadOnly means that the store does not accept this change from this program. It says
	// nothing of the store's health.
	ErrReadOnly = errors.New("read only")
	// ErrUnavailable means that the store cannot be reached or does not serve.
	ErrUnavailable = errors.New("unavailable")
	// ErrReply means that a reply of the store violates its protocol.
	ErrReply = errors.New("bad reply")
	// ErrPartlyDone means that a change has failed when a part of it was done. Without it, none was
	// as far as the backend knows.
	ErrPartlyDone = errors.New("some keys were changed")
	// ErrMismatch means that a server answers but differs from the configuration: another
	// protocol, TLS or none, another password, or a cluster. A retry does not help until one
	// of the two changes. It comes together with ErrUnavailable or ErrReply.
	ErrMismatch = errors.New("not as configured")
)
