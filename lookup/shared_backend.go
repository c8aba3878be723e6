package lookup

import (
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/sony/gobreaker/v2"

	"github.com/hitline/hitline/backend"
)

// SharedBackend is a backend that the services of several pools ask. They have one circuit
// breaker, and one bound each on calls and on keys in memory. Safe for concurrent
// use.
type SharedBackend struct {
	store      backend.Backend
	cfg        RemoteConfig
	breaker    *gobreaker.TwoStepCircuitBreaker[struct{}]
	breakerLog breakerLog
	watcher    backend.Watcher // the store, nil if it is none
	removals   atomic.Uint64   // by calls of this program, as far as they may have removed keys: see epoch
	reads      *backendCalls
	changes    *backendCalls
	durations  callDurations
	// cpu holds an element for each lookup that builds keys or reads answers, and smallCPU one for each
	// whose round has few keys.
	cpu, smallCPU     chan struct{}
	keyMemory         *keyMemory
	remembered        *blockMemory
	renewed           *blockMemory                // that renewals have asked for, also those that were not found
	remembering       atomic.Pointer[remembering] // nil before the first lookup
	leaseMu           sync.Mutex                  // held while remembering is set; guards loggedRememberFor
	loggedRememberFor bool                        // that RemoteConfig.Remember is too long

	failure     atomic.Pointer[callError] // of the latest call, nil if it did not fail
	lastSuccess atomic.Int64              // when the backend last answered or was first asked, in monotime; 0 before
}

// NewSharedBackend returns store for services: see ServiceConfig.Shared. The caller closes
// store after the last call of its services has returned. logger, if not nil, logs when the store
// begins to fail and when it has recovered.
func NewSharedBackend(store backend.Backend, cfg RemoteConfig, logger *slog.Logger) *SharedBackend {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	cfg = cfg.withDefaults()
	b := &SharedBackend{
		store: store, cfg: cfg,
		breakerLog: breakerLog{logger: logger, backend: store.Name()},
		cpu:        make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2)),
		smallCPU:   make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/8)),
		keyMemory:  newKeyMemory(cfg.MaxKeyBytes, cfg.Memory),
	}
	b.watcher, _ = store.(backend.Watcher)
	b.remembered = newBlockMemory(cfg.maxRememberedBytes()/8*5, cfg.Memory, b.epoch)
	b.renewed = newBlockMemory(cfg.maxRememberedBytes()/8, cfg.Memory, b.epoch)
	b.reads = newBackendCalls(store, max(maxAbandonedReads, 2*cfg.Workers), &b.durations)
	b.changes = newBackendCalls(store, maxAbandonedChanges, &b.durations)
	b.changes.returnedLate = b.changeReturned
	b.breaker = newBreaker(cfg)
	return b
}

// Config returns the configuration with its defaults filled in.
func (b *SharedBackend) Config() RemoteConfig { return b.cfg }

// Name returns the name of the backend, such as "mooncake".
func (b *SharedBackend) Name() string { return b.store.Name() }

// State returns the state of the circuit breaker, one of BackendStates.
func (b *SharedBackend) State() string { return b.breaker.State().String() }
