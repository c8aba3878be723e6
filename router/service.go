package router

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/hitline/hitline/internal/fielderror"
	"github.com/hitline/hitline/router/events"
	"github.com/hitline/hitline/router/fleet"
)

// Errors of a Service. Those of sources are those of package events and of package fleet.
var (
	ErrNoModel     = errors.New("router: there is no such model")
	ErrNoHashing   = errors.New("router: how the model's tokens are hashed is not configured; ask by hashes")
	ErrNoPool      = errors.New("router: the model has no pool whose store could be asked")
	ErrWholeHash   = errors.New("router: the store's keys need whole digests, not 64 bits of them")
	ErrHashLen     = errors.New("router: hashes of another length than those of the model's pool")
	ErrTooMany     = errors.New("router: too many models")
	ErrOtherBlock  = errors.New("router: another block size than the model's")
	ErrOtherType   = errors.New("router: an engine of another type than the model's")
	ErrNoBlockSize = errors.New("router: the block size of the model is not known yet; configure it, or name it with the first source")
	// ErrField refuses a field of a source, or a name; it has a fielderror.Error.
	ErrField = errors.New("router: bad field")
	ErrToken = errors.New("router: no token id")
	// ErrAdapter refuses tokens with an adapter whose hashes cannot be known.
	ErrAdapter = errors.New("router: the hashes with this adapter cannot be computed")
)

// DefaultTenant is the tenant of models and queries that name none.
const DefaultTenant = "default"

// ModelKey names a model: its blocks are compared with those of no other.
type ModelKey struct {
	Tenant string `json:"tenant_id"` // "" is DefaultTenant
	Name   string `json:"model"`     // in a query "" is the only model of the tenant
}

// withDefaults returns the key with its tenant.
func (k ModelKey) withDefaults() ModelKey {
	k.Tenant = cmp.Or(k.Tenant, DefaultTenant)
	return k
}

// Config configures a Service.
type Config struct {
	Models []Model
	// MaxModels bounds the models, those included that sources name and Models lacks; 0: DefaultMaxModels.
	MaxModels int
	// MaxSources bounds the sources that are registered; 0: events.DefaultMaxSources.
	MaxSources int
	// Fleet has the limits of models that Models lacks. Its BlockSize and FirstBytes do not count.
	Fleet fleet.Config
	// Allow are the endpoints that Register may connect to, see events.ManagerConfig.
	Allow []string
	// MaxPayload bounds a batch of events, in bytes; 0: events.DefaultMaxPayload.
	MaxPayload int
	Logger     *slog.Logger // nil discards
}

// DefaultMaxModels is how many models there are at most. Each may take the memory of its fleet.
const DefaultMaxModels = 16

// Service has the models, their holders and the sources that fill them. Safe for concurrent use.
type Service struct {
	cfg     Config
	log     *slog.Logger
	manager *events.Manager

	// changing is held by calls that add or end sources, before mu. Queries do not take either.
	changing sync.Mutex

	mu     sync.Mutex
	active map[string]*activeSource // by the name of the source
	// loaded are the sources of a dump whose holders no source fills yet.
	loaded map[holderKey]*loadedSource
	// models is replaced as a whole, with mu held.
	models atomic.Pointer[map[ModelKey]*model]

	dumping sync.Mutex // held while a dump is written
	replica replicaState
}

// New returns a service without sources. Its errors are fielderror.ErrConfig, or those of events.NewManager.
func New(cfg Config) (*Service, error) {
	cfg.MaxModels = cmp.Or(cfg.MaxModels, DefaultMaxModels)
	if len(cfg.Models) > cfg.MaxModels {
		return nil, fmt.Errorf("router: %w: %d models; at most %d are possible", fielderror.ErrConfig, len(cfg.Models), cfg.MaxModels)
	}
	s := &Service{cfg: cfg, log: cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler)), active: map[string]*activeSource{}}
	models := make(map[ModelKey]*model, len(cfg.Models))
	for _, c := range cfg.Models {
		m, err := newModel(c, true)
		if err != nil {
			return nil, err
		}
		if models[m.cfg.ModelKey] != nil {
			return nil, fmt.Errorf("router: %w: model %q of tenant %q is there twice", fielderror.ErrConfig, m.cfg.Name, m.cfg.Tenant)
		}
		models[m.cfg.ModelKey] = m
	}
	s.models.Store(&models)
	var err error
	s.manager, err = events.NewManager(events.ManagerConfig{Allow: cfg.Allow, MaxSources: cfg.MaxSources})
	return s, err
}

// Close ends all sources and waits for them. What they filled is stale then; queries are still answered.
func (s *Service) Close() {
	s.changing.Lock()
	defer s.changing.Unlock()
	s.manager.Close()
}
