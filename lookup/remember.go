package lookup

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hitline/hitline/backend"
)

// storeMemory is what calls of a store have told of its blocks, and for how long that holds. It owns the
// epoch: whatever may have removed keys begins one. Safe for concurrent use.
type storeMemory struct {
	backend backend.Backend
	epoch   epoch
	cfg     *RemoteConfig
	logger  *slog.Logger
	present *blockMemory                // that calls have found
	renewed *blockMemory                // that renewals have asked for, also those that were not found
	current atomic.Pointer[remembering] // nil before the first lookup

	mu     sync.Mutex // held while current is set
	logged bool       // that RemoteConfig.Remember is too long; under mu
}

// remembering is what follows from a lease that the store has stated. Immutable.
type remembering struct {
	lease       backend.Lease
	rememberFor int64 // ns for which a found block is answered from memory
}

func newStoreMemory(store backend.Backend, cfg *RemoteConfig, logger *slog.Logger) *storeMemory {
	m := &storeMemory{backend: store, epoch: epoch{backend: store}, cfg: cfg, logger: logger}
	m.present = newBlockMemory(cfg.maxRememberedBytes()/8*5, cfg.Memory, m.epoch.now)
	m.renewed = newBlockMemory(cfg.maxRememberedBytes()/8, cfg.Memory, m.epoch.now)
	return m
}

// rememberFor returns for how many nanoseconds a found block is answered from memory, 0 for none. It is cheap.
func (m *storeMemory) rememberFor() int64 {
	lease := m.backend.Lease()
	if lease.Duration == 0 {
		return 0
	}
	if r := m.current.Load(); r != nil && r.lease == lease {
		return r.rememberFor
	}
	return m.setLease(lease)
}

// setLease is rememberFor after the lease has changed.
func (m *storeMemory) setLease(lease backend.Lease) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.current.Load()
	if before != nil && before.lease == lease {
		return before.rememberFor
	}
	rememberFor := m.cfg.rememberFor(lease.Stated)
	if lease.Stated > 0 && rememberFor < m.cfg.Remember && !m.logged {
		m.logged = true
		m.logger.Error("found blocks are not remembered for as long as backend.mooncake.remember says: "+
			"the store's lease would leave too little time to load them",
			"backend", m.backend.Name(), "configured", m.cfg.Remember, "remembered", rememberFor, "lease", lease.Stated)
	}
	keep := time.Duration(0)
	if rememberFor > 0 {
		keep = max(rememberFor, lease.Duration) // renewals ask for nothing that was found within a lease
	}
	m.present.setKeep(int64(keep))
	m.current.Store(&remembering{lease, int64(rememberFor)})
	return int64(rememberFor)
}
