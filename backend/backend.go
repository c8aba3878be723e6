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
// when it can no longer take effect, as far as can be known. The service waits 5 ms longer and then
// abandons the call. It starts no Exists while 64 abandoned ones, or twice
// RemoteConfig.Workers if that is more, have not returned. It starts no other change while
// an abandoned change has not returned, since the abandoned one could undo it.
type Backend interface {
	// Name returns the name that stat shows, such as "mooncake" or "redis".
	Name() string
	// Exists returns one answer for each key, in the order of keys. 1 means present; every
	// other number means absent, as in the reference. If key i is absent, it may leave out the
	// keys from keys.End(i) on. Another number of answers fails the lookup. A lookup may need one
	// call or several.
	Exists(ctx context.Context, keys Keys) ([]int, error)
	// Store adds keys. It returns ErrReadOnly if only engines may fill the store.
	Store(ctx context.Context, keys []string) error
	// Evict removes keys. Absent keys are no error. It may return ErrReadOnly.
	Evict(ctx context.Context, keys []string) error
	// Reset removes every block of the pool. It may return ErrReadOnly.
	Reset(ctx context.Context) error
	// Close releases the backend. Its creator calls it when no service uses the backend any
	// longer.
	Close() error
}

// ResetChecker is a Backend that knows whether it refuses a Reset.
type ResetChecker interface {
	// CheckReset returns the error with which Reset would refuse, nil if Reset would ask the store.
	CheckReset() error
}

// Leaser is a Backend that keeps what it has found for a while.
type Leaser interface {
	// Lease returns what is known of it now. It asks nobody.
	Lease() Lease
}

// Lease is how long a store keeps a block that Exists has found.
type Lease struct {
	// Duration is for how long at least: as configured, else Stated, else the shortest default of such stores.
	Duration time.Duration
	// Stated is what the store itself has said, 0 before. It does not say whether the store has groups.
	Stated time.Duration
}

// Watcher is a Backend that watches its store, also between calls. Its methods ask nobody, and do not wait.
type Watcher interface {
	// Generation grows whenever keys may have gone that none of the backend's own calls has removed: another leader
	// or process answers, a connection was lost while a call was on it, or none can be made. A connection that was
	// found to have ended before the first byte of a call was sent is no reason, if the next one is to the same process.
	Generation() uint64
	// Failure returns why the store cannot be reached, nil if it can as far as is known.
	Failure() error
}

// Peeker is a Backend that can be asked without keeping what it finds.
type Peeker interface {
	// Peek is Exists for keys that nobody is about to load: if the store can, it leases none. What it finds may be gone at
	// once.
	Peek(ctx context.Context, keys Keys) ([]int, error)
}

// Sizer is a Backend that can be asked how large its store is.
type Sizer interface {
	// MaxKeys returns about how many keys like those there the store has room for, 0 if that is not known.
	MaxKeys(ctx context.Context) (int64, error)
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
