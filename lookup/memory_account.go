package lookup

import "sync/atomic"

// MemoryAccount counts the memory that peers make a server hold, and bounds it: replies that
// they have not read, bytes that are kept, and requests that have not ended with their hashes.
// Over a backend it also counts the keys and answers of calls, what is remembered of found blocks, and requests to
// renew that wait. The memory index is not part of it. Safe for concurrent use.
type MemoryAccount struct {
	maxBytes atomic.Int64
	bytes    atomic.Int64
	refused  atomic.Int64
}

// NewMemoryAccount returns an account of at most maxBytes bytes; 0 or less means no bound.
func NewMemoryAccount(maxBytes int64) *MemoryAccount {
	a := &MemoryAccount{}
	a.SetMax(maxBytes)
	return a
}

// SetMax sets the bound. What is held beyond it stays, and nothing is reserved until it is freed.
func (a *MemoryAccount) SetMax(maxBytes int64) { a.maxBytes.Store(maxBytes) }

// Reserve adds n bytes of what may be left out, and returns false if the bound would be exceeded. A nil account has no bound.
func (a *MemoryAccount) Reserve(n int64) bool {
	if a == nil {
		return true
	}
	total, most := a.bytes.Add(n), a.maxBytes.Load()
	if n > 0 && most > 0 && total > most {
		a.bytes.Add(-n)
		return false
	}
	return true
}

// Charge adds n bytes that something else bounds.
func (a *MemoryAccount) Charge(n int64) {
	if a != nil {
		a.bytes.Add(n)
	}
}

// Refuse counts a request that is refused, or a connection that is closed, for memory.
func (a *MemoryAccount) Refuse() {
	if a != nil {
		a.refused.Add(1)
	}
}

// Free subtracts n bytes that were reserved or charged.
func (a *MemoryAccount) Free(n int64) {
	if a != nil {
		a.bytes.Add(-n)
	}
}

// Usage returns the bytes held now, their bound (0 or less for none), and the number of refusals
// since the start.
func (a *MemoryAccount) Usage() (bytes, maxBytes, refused int64) {
	if a == nil {
		return 0, 0, 0
	}
	return a.bytes.Load(), a.maxBytes.Load(), a.refused.Load()
}
