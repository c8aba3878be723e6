package lookup

import (
	"log/slog"
	"runtime"

	"github.com/hitline/hitline/backend"
	"github.com/hitline/hitline/internal/admission"
	"github.com/hitline/hitline/lookup/api"
)

// SharedBackend is a backend that the services of several pools ask. They have one circuit
// breaker, and one bound each on calls and on keys in memory. Safe for concurrent use.
type SharedBackend struct {
	backend   backend.Backend
	cfg       RemoteConfig
	health    *health
	memory    *storeMemory
	keys      *admission.Admission // memory of the keys of all calls in flight
	cpu       *admission.Admission // tokens: see cpuToken
	durations callDurations
	changes   *changeCalls
}

// NewSharedBackend returns store for services: see ServiceConfig.Shared. The caller closes
// store after the last call of its services has returned. logger, if not nil, logs when the store
// begins to fail and when it has recovered.
func NewSharedBackend(store backend.Backend, cfg RemoteConfig, logger *slog.Logger) *SharedBackend {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	b := &SharedBackend{backend: store, cfg: cfg.withDefaults(), cpu: admission.New(numCPUTokens(runtime.GOMAXPROCS(0)))}
	b.health = newHealth(store, &b.cfg, logger)
	b.memory = newStoreMemory(store, &b.cfg, logger)
	b.keys = admission.New(b.cfg.MaxKeyBytes)
	b.changes = newChangeCalls(store, &b.durations, b.changeReturned)
	return b
}

// changeReturned begins an epoch when a change that was given up has returned. It may have happened just now.
func (b *SharedBackend) changeReturned(kind callKind) {
	if kind != callStore {
		b.memory.epoch.begin()
	}
}

// Config returns the configuration with its defaults filled in.
func (b *SharedBackend) Config() RemoteConfig { return b.cfg }

// Name returns the name of the backend, such as "mooncake".
func (b *SharedBackend) Name() string { return b.backend.Name() }

// Generation returns a number that grows whenever another process of the store may answer.
func (b *SharedBackend) Generation() uint64 { return b.backend.Generation() }

// State returns the state of the circuit breaker, one of BackendStates.
func (b *SharedBackend) State() string { return b.health.breaker.State().String() }

// Down reports whether every call would fail: the breaker refuses it, or the store cannot be reached.
func (b *SharedBackend) Down() bool { return b.health.isDown() }

// Failure returns why the latest call of the backend failed, or else why its store cannot be
// reached, nil if neither is so. Calls that ended by our own doing, and refused changes, do not
// count.
func (b *SharedBackend) Failure() error { return b.health.lastFailure() }

// ReportFailure makes err what Failure returns, until a call of a service succeeds: the store was asked by
// other means.
func (b *SharedBackend) ReportFailure(err error) { b.health.failure.Store(&callError{err}) }

// CallDurations returns histograms of the durations in seconds of calls: exists, store, evict and reset, of all
// pools. A call counts when it has returned or, of a change, was abandoned. The caller owns the result.
func (b *SharedBackend) CallDurations() map[string]api.Histogram { return b.durations.all() }
