package server

import (
	"fmt"

	"github.com/hitline/hitline/internal/admission"
	"github.com/hitline/hitline/lookup"
)

const (
	// maxJobBytes bounds the bytes of hashes of all jobs, if the memory account allows as much.
	maxJobBytes = 256 << 20
	// maxInFlightBytes is how many bytes of requests a client may have in flight: see api.Limits. 56
	// lookups of 2,048 hashes, or 8 of 16,384, then wait for each other.
	maxInFlightBytes = 4 << 20
)

// newAdmission returns what bounds the bytes of hashes of all jobs that have arrived and have no reply. What else connections
// hold, and requests that still arrive, is charged in held.go. Jobs take at most half of the account; over a store, whose keys
// have the same account, RemoteConfig.MaxBytes.
func newAdmission(memory *lookup.MemoryAccount, backend *lookup.SharedBackend) *admission.Admission {
	most := int64(maxJobBytes)
	if _, maxMemory, _ := memory.Usage(); maxMemory > 0 {
		most = min(most, maxMemory/2)
	}
	if backend != nil {
		most = min(most, backend.Config().MaxBytes)
	}
	return admission.New(most)
}

// checkNeeded refuses a job that needs more bytes of hashes than it will ever be given.
func (s *Server) checkNeeded(bytes int) error {
	if limit := s.admission.MaxLarge(); bytes > admission.SmallBytes && int64(bytes) > limit {
		return &limitError{text: fmt.Sprintf("%d bytes of hashes, this server takes %d at a time (see limits.max_memory)", bytes, limit), limit: limit}
	}
	return nil
}
