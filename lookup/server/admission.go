package server

import (
	"fmt"

	"github.com/hitline/hitline/internal/admission"
	"github.com/hitline/hitline/lookup"
)

// maxInFlightBytes is how many bytes of requests a client may have in flight: see api.Limits. 56
// lookups of 2,048 hashes, or 8 of 16,384, then wait for each other.
const maxInFlightBytes = 4 << 20

// admissionBounds returns what bounds the bytes that connections hold, for all and for each: three quarters of the account, as garbage takes as much
// again before it is collected, or five sixteenths of it if the keys of a store are charged to the same one
// (RemoteConfig.Memory). Half of them, over a store at most RemoteConfig.MaxBytes, is for all. What is left is divided among
// as many connections as there may be: so each may hold some, whatever others do.
func admissionBounds(memory *lookup.MemoryAccount, backend *lookup.SharedBackend, maxConnections int) (common, share int64) {
	_, held, _ := memory.Usage()
	if held <= 0 {
		held = DefaultLimits().MaxMemory
	}
	if backend != nil && backend.Config().Memory == memory {
		held = held * 5 / 16
	} else {
		held = held * 3 / 4
	}
	common = held / 2
	if backend != nil {
		common = min(common, backend.Config().MaxBytes)
	}
	return common, (held - common) / int64(maxConnections)
}

// checkNeeded refuses a job that needs more bytes of hashes than it will ever be given.
func (s *Server) checkNeeded(bytes int) error {
	if limit := s.admission.MaxRequest(); bytes > admission.SmallBytes && int64(bytes) > limit {
		return &limitError{text: fmt.Sprintf("%d bytes of hashes, this server takes %d at a time (see limits.max_memory)", bytes, limit), limit: limit}
	}
	return nil
}
