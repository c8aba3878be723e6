package server

import (
	"fmt"
	"sync/atomic"

	"github.com/hitline/hitline/lookup"
)

// admission bounds the bytes of hashes of all jobs that have arrived and have no reply. Small jobs have a
// quarter that larger ones do not use, and no connection takes more than it leaves: n busy ones leave
// 1/(n+1). What else connections hold, and requests that still arrive, is charged in held.go. Safe for
// concurrent use.
type admission struct {
	max, maxLarge int64
	all, large    atomic.Int64 // bytes
}

const (
	// maxJobBytes bounds the bytes of hashes of all jobs, if the memory account allows as much.
	maxJobBytes = 256 << 20
	// smallBytes is how many bytes of hashes a small job has at most: 2,048 hashes of 32 bytes.
	smallBytes = 64 << 10
	// maxInFlightBytes is how many bytes of requests a client may have in flight: see api.Limits. 56
	// lookups of 2,048 hashes, or 8 of 16,384, then wait for each other.
	maxInFlightBytes = 4 << 20
)

// newAdmission returns the admission of jobs. They take at most half of the account; over a store,
// whose keys have the same account, RemoteConfig.MaxBytes.
func newAdmission(memory *lookup.MemoryAccount, backend *lookup.SharedBackend) *admission {
	a := &admission{max: maxJobBytes}
	if _, maxMemory, _ := memory.Usage(); maxMemory > 0 {
		a.max = min(a.max, maxMemory/2)
	}
	if backend != nil {
		a.max = min(a.max, backend.Config().MaxBytes)
	}
	a.maxLarge = a.max - a.max/4
	return a
}

// check refuses a job that needs more bytes of hashes than it will ever be given.
func (a *admission) check(neededBytes int) error {
	if n := int64(neededBytes); n > smallBytes && n > a.maxLarge {
		return &limitError{text: fmt.Sprintf("%d bytes of hashes, this server takes %d at a time (see limits.max_memory)", n, a.maxLarge), limit: a.maxLarge}
	}
	return nil
}

// admit adds n bytes of hashes of a job. held is what other jobs of its connection hold. It returns false
// and adds nothing if that is too much.
func (a *admission) admit(n int64, small bool, held int64) bool {
	if !small && !addWithin(&a.large, n, a.maxLarge) {
		return false
	}
	all := a.all.Add(n)
	if all <= a.max && (held == 0 || held+n <= a.max-all) {
		return true
	}
	a.all.Add(-n)
	if !small {
		a.large.Add(-n)
	}
	return false
}

// free subtracts n bytes that were admitted.
func (a *admission) free(n int64, small bool) {
	a.all.Add(-n)
	if !small {
		a.large.Add(-n)
	}
}

// addWithin adds n to sum. It returns false and adds nothing if limit would be exceeded.
func addWithin(sum *atomic.Int64, n, limit int64) bool {
	if sum.Add(n) <= limit {
		return true
	}
	sum.Add(-n)
	return false
}
