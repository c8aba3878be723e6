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

// Reserve adds n bytes, and returns false and counts a refusal if the bound would be exceeded.
// A nil account has no bound.
func (a *MemoryAccount) Reserve(n int64) bool {
	ok := a.TryReserve(n)
	if !ok {
		a.refused.Add(1)
	}
	return ok
}

// TryReserve is Reserve for what may be left out: a refusal is not counted.
func (a *MemoryAccount) TryReserve(n int64) bool {
	if a == nil {
		return true
	}
	if total := a.bytes.Add(n); n > 0 && a.exceeds(total) {
		a.bytes.Add(-n)
		return false
	}
	return true
}

// Charge adds n bytes, which may be negative. It returns false if the bound is exceeded: the
// caller holds them already, and should free others.
func (a *MemoryAccount) Charge(n int64) bool {
	if a == nil {
		return true
	}
	total := a.bytes.Add(n)
	return !a.exceeds(total)
}

// exceeds reports whether so many bytes are more than the bound.
func (a *MemoryAccount) exceeds(total int64) bool {
	most := a.maxBytes.Load()
	return most > 0 && total > most
}

// Refuse counts a refusal that Charge has led to.
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
