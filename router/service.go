package router

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hitline/hitline/internal/cpushare"
	"github.com/hitline/hitline/internal/fielderror"
	"github.com/hitline/hitline/router/events"
	"github.com/hitline/hitline/router/fleet"
)

// Errors of a Service. Those of sources are those of package events and of package fleet.
var (
	ErrNoModel    = errors.New("there is no such model")
	ErrNoHashing  = errors.New("how the model's tokens are hashed is not configured; ask by hashes")
	ErrWholeHash  = errors.New("the store's keys need whole digests, not 64 bits of them")
	ErrHashLen    = errors.New("hashes of another length than those of the model's pool")
	ErrTooMany    = errors.New("too many")
	ErrOtherBlock = errors.New("another block size than the model's")
	ErrOtherType  = errors.New("an engine of another type than the model's")
	// ErrHashesDiffer refuses tokens whose hashes no engine would have.
	ErrHashesDiffer = errors.New("the engines hash tokens otherwise than the model's hash says, see hashes_reason in /services; ask by hashes, or configure it")
	// ErrField refuses a field of a source or a query. The error names it.
	ErrField = errors.New("bad field")
	ErrToken = errors.New("no token id")
	// ErrAdapter refuses tokens with an adapter whose hashes cannot be known.
	ErrAdapter = errors.New("the hashes with this adapter cannot be computed")
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
	// MaxSources bounds the sources that are registered; 0: DefaultMaxSources.
	MaxSources int
	// Fleet has the limits of models that Models lacks. Its BlockSize and FirstBytes do not count.
	Fleet fleet.Config
	// Allow are the endpoints that Register may connect to: tcp://HOST:PORT, where HOST may be a CIDR network (IPv6 in
	// brackets) and PORT a range (5557-5564) or *; or an ipc://path. Empty: Register is refused. Names are compared,
	// never resolved.
	Allow []string
	// MaxPayload bounds a batch of events, in bytes; 0: events.DefaultMaxPayload. All sources together take
	// events.MemoryBytes of it, besides events.SourceBytes each.
	MaxPayload int
	CPU        *cpushare.Share // that sources compute on; nil: all processors
	Logger     *slog.Logger    // nil discards
}

// DefaultMaxModels is how many models there are at most. Each may take the memory of its fleet.
const DefaultMaxModels = 16

// Service has the models, their holders and the sources that tell what these hold. Safe for concurrent use.
type Service struct {
	cfg   Config
	allow allowList
	log   *slog.Logger
	// memory is what all sources share.
	memory *events.Memory

	// changing is held by calls that add or end models, sources or holders of a dump: a source's name and holder stay
	// reserved while it starts or stops. Queries do not take it.
	changing  sync.Mutex
	closed    bool
	models    atomic.Pointer[map[ModelKey]*model] // replaced as a whole
	unclaimed map[holderKey]*dumpedSource         // sources of a dump whose holders have no source yet

	mu         sync.Mutex               // taken after changing
	active     map[string]*activeSource // by name; changed with changing held, too
	unfollowed map[holderKey]sourceInfo // sources of a dump that are not followed here; changed with changing held, too

	dumping           chan struct{} // has an element while a dump is written
	starting, loading atomic.Bool
	catchUpUntil      time.Time // how long Ready waits for sources of a dump; mu guards it
}

// New returns a service without sources. Its errors are api.ErrConfig of package lookup/api, and name a field.
func New(cfg Config) (*Service, error) {
	for field, n := range map[string]int{"max_models": cfg.MaxModels, "max_sources": cfg.MaxSources, "max_payload": cfg.MaxPayload} {
		if n < 0 {
			return nil, badConfig(fielderror.New([]string{field}, "%d is negative", n))
		}
	}
	cfg.MaxModels, cfg.MaxSources = cmp.Or(cfg.MaxModels, DefaultMaxModels), cmp.Or(cfg.MaxSources, DefaultMaxSources)
	s := &Service{
		cfg: cfg, memory: events.NewMemory(cfg.MaxPayload), log: cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler)),
		active: map[string]*activeSource{}, unfollowed: map[holderKey]sourceInfo{}, dumping: make(chan struct{}, 1),
	}
	models := make(map[ModelKey]*model, len(cfg.Models))
	var err error
	if s.allow, err = newAllowList(cfg.Allow); err != nil {
		return nil, badConfig(err)
	}
	if n := len(cfg.Models); n > cfg.MaxModels {
		return nil, badConfig(fielderror.New([]string{"models"}, "%d models; at most %d are possible, see max_models", n, cfg.MaxModels))
	}
	for i, c := range cfg.Models {
		m, err := newModel(c, true)
		if err == nil && models[m.cfg.ModelKey] != nil {
			err = fielderror.New([]string{"name"}, "%q of tenant %q is a model before it", m.cfg.Name, m.cfg.Tenant)
		}
		if err != nil {
			return nil, badConfig(fielderror.Below(fmt.Sprintf("models[%d]", i), err))
		}
		models[m.cfg.ModelKey] = m
	}
	s.models.Store(&models)
	return s, nil
}

func badConfig(err error) error { return fmt.Errorf("%w: %w", fielderror.ErrConfig, err) }

// Close ends all sources and waits for them. What they held is stale then; queries are still answered.
func (s *Service) Close() {
	s.changing.Lock()
	defer s.changing.Unlock()
	s.closed = true
	var closing sync.WaitGroup
	for _, a := range s.sources() {
		closing.Go(a.follower.Close)
	}
	closing.Wait()
}
