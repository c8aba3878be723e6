package router

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/fielderror"
	"github.com/hitline/hitline/router/fleet"
)

// Model configures a model.
type Model struct {
	ModelKey
	// Fleet bounds and describes what is held. BlockSize 0 is that of Pool.
	// FirstBytes is set if Hash is SGLang's.
	Fleet    fleet.Config
	Pool     Pool   // whose store the model's engines load from; nil: there is none
	PoolName string // "" for the server's own
	// Hash says how token ids are hashed, nil if only hashes are asked about.
	Hash *Hashing
}

// Pool says what a store that engines share can load. A lookup.Service is one, and a hicache.Pool.
type Pool interface {
	// Pool returns how the keys of the store are made. It does not change.
	Pool() coordinator.Pool
	// PeekPrompt returns how many tokens of a prompt with these block hashes the store can load. It may grant leases. It
	// fails with LoadableUnknown if that cannot be told, which fails no query.
	PeekPrompt(ctx context.Context, numTokens int64, hashes coordinator.Hashes) (coordinator.Hit, error)
}

// LoadableUnknown is why a store cannot say what it can load.
type LoadableUnknown string

// Error implements error.
func (why LoadableUnknown) Error() string { return string(why) }

// model is a model and its holders.
type model struct {
	configured bool
	cfg        Model
	fleet      atomic.Pointer[fleet.Fleet] // replaced by that of a dump
	scratch    sync.Pool                   // of *scratch
	changes    atomic.Uint64               // how often a source was added or removed, or its state was another
	unsure     atomic.Pointer[unsureList]  // nil: not made yet

	mu sync.Mutex
	// withoutSource are the holders without a source, with the time until which their predictions may count.
	withoutSource map[fleet.ID]time.Time
	nextDrop      time.Time // when the expired ones are dropped next
}

// locked calls do with mu held. After a panic others do not wait for it.
func (m *model) locked(do func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	do()
}

// changed says that the state of a source is another.
func (m *model) changed() { m.changes.Add(1) }

// newModel checks the configuration of a model. Its errors name a field, see package fielderror.
func newModel(cfg Model, configured bool) (*model, error) {
	cfg.ModelKey = cfg.withDefaults()
	cfg.Fleet.PredictTTL = cmp.Or(cfg.Fleet.PredictTTL, fleet.DefaultPredictTTL)
	if err := cfg.ModelKey.check("name"); err != nil {
		return nil, err
	}
	if cfg.Pool != nil {
		size := cfg.Pool.Pool().HashBlockSize
		cfg.Fleet.BlockSize = cmp.Or(cfg.Fleet.BlockSize, size)
		if cfg.Fleet.BlockSize != size {
			return nil, fielderror.New([]string{"block_size"}, "is %d, and the hash_block_size of its pool is %d; give the same, or pool: \"-\"",
				cfg.Fleet.BlockSize, size)
		}
	}
	if cfg.Fleet.BlockSize == 0 {
		return nil, fielderror.New([]string{"block_size"}, "is missing, and no pool has it; give the tokens of a block, the engines' hash_block_size")
	}
	if cfg.Hash != nil {
		cfg.Hash = new(*cfg.Hash)
		cfg.Hash.SetDefaults()
		cfg.Fleet.FirstBytes = cfg.Hash.Type == TypeSGLang
	}
	m := &model{configured: configured, cfg: cfg, withoutSource: map[fleet.ID]time.Time{}}
	m.cfg.Fleet.Dropped = m.changed
	m.scratch.New = func() any { return new(scratch) }
	f, err := m.newFleet()
	m.fleet.Store(f)
	return m, err
}

// newFleet returns a fleet for the model, without holders.
func (m *model) newFleet() (*fleet.Fleet, error) {
	f, err := fleet.New(m.cfg.Fleet)
	if m.cfg.Hash == nil || err != nil {
		return f, err
	}
	n, err := m.cfg.Hash.check(m.cfg.Fleet.BlockSize)
	if err == nil && m.checkHashLen(n) != nil {
		err = fielderror.New([]string{"algorithm", "type"}, "makes hashes of %d bytes, and those of the pool have %d; give the engines' own",
			n, m.cfg.Pool.Pool().HashLen)
	}
	if err != nil {
		return nil, fielderror.Below("hash", err)
	}
	return f, nil
}

// checkBlockSize refuses another block size than the model's. 0 is any.
func (m *model) checkBlockSize(size int) error {
	if want := m.cfg.Fleet.BlockSize; size != 0 && size != want {
		return badField(ErrOtherBlock, "block_size", "is %d, and that of model %q is %d; give the same, or leave it out", size, m.cfg.Name, want)
	}
	return nil
}

// checkSource refuses a source of another type or block size than the model's.
func (m *model) checkSource(src *Source) error {
	if src.Type != "" && (src.Type == TypeSGLang) != m.cfg.Fleet.FirstBytes {
		return badField(ErrOtherType, "type", "is %s, and model %q has engines of another type; leave it out, or name another model", src.Type, m.cfg.Name)
	}
	return m.checkBlockSize(src.BlockSize)
}

// find returns a model by its key, or the only one of the tenant if the key has no name. Models that a sender may not
// ask about do not exist; nil: all do.
func (s *Service) find(key ModelKey, mayAsk func(pool *string) bool) (*model, error) {
	key = key.withDefaults()
	models := *s.models.Load()
	visible := func(m *model) bool { return mayAsk == nil || mayAsk(m.poolName()) }
	if m := models[key]; m != nil && visible(m) {
		return m, nil
	}
	if key.Name != "" {
		return nil, fmt.Errorf("%w: %q of tenant %q", ErrNoModel, key.Name, key.Tenant)
	}
	var found *model
	for k, m := range models {
		switch {
		case k.Tenant != key.Tenant || !visible(m):
		case found != nil:
			return nil, fmt.Errorf("%w: tenant %q has several; name a model", ErrNoModel, key.Tenant)
		default:
			found = m
		}
	}
	if found == nil {
		return nil, fmt.Errorf("%w: tenant %q has none", ErrNoModel, key.Tenant)
	}
	return found, nil
}

// Fleet returns the holders of a model, for callers that have their hashes in pieces. It fails with ErrNoModel.
func (s *Service) Fleet(key ModelKey) (*fleet.Fleet, error) {
	m, err := s.find(key, nil)
	if err != nil {
		return nil, err
	}
	return m.fleet.Load(), nil
}

// FindModel returns the key of a model, with its name if key has none, as if there were only the models about which
// mayAsk returns true. It gets the name of the model's pool, nil without one. FindModel fails with ErrNoModel.
func (s *Service) FindModel(key ModelKey, mayAsk func(pool *string) bool) (ModelKey, error) {
	m, err := s.find(key, mayAsk)
	if err != nil {
		return key, err
	}
	return m.cfg.ModelKey, nil
}

// poolName returns the name of the model's pool, nil if it has none.
func (m *model) poolName() *string {
	if m.cfg.Pool == nil {
		return nil
	}
	return &m.cfg.PoolName
}

// numGoing returns how many models go if some sources end: those that came with sources, all of which are among them.
// s.changing is held.
func (s *Service) numGoing(ending []*activeSource) int {
	going := map[*model]bool{}
	for _, a := range ending {
		stays := func(b *activeSource) bool { return b.model == a.model && !slices.Contains(ending, b) }
		if !a.model.configured && !s.hasUnclaimed(a.ModelKey()) && !slices.ContainsFunc(s.sources(), stays) {
			going[a.model] = true
		}
	}
	return len(going)
}

// modelOf returns the model of a source, which is made if there is none. Of the models that there are some will go.
// s.changing is held.
func (s *Service) modelOf(src *Source, going int) (*model, error) {
	key := src.ModelKey()
	models := *s.models.Load()
	if m := models[key]; m != nil {
		return m, m.checkSource(src)
	}
	if len(models)-going >= s.cfg.MaxModels {
		return nil, fmt.Errorf("%w models: there are %d", ErrTooMany, len(models))
	}
	if src.BlockSize == 0 {
		return nil, badField(ErrField, "block_size", "has no block_size, and model %q is not known; give the engine's", key.Name)
	}
	m, err := newModel(s.sourcedModel(&modelInfo{key, src.BlockSize, src.Type == TypeSGLang}), false)
	if err != nil {
		return nil, badConfig(err)
	}
	models = maps.Clone(models)
	models[key] = m
	s.models.Store(&models)
	return m, nil
}

// sourcedModel returns the configuration of a model that comes with a source.
func (s *Service) sourcedModel(info *modelInfo) Model {
	cfg := Model{ModelKey: info.key(), Fleet: s.cfg.Fleet}
	cfg.Fleet.BlockSize, cfg.Fleet.FirstBytes = info.BlockSize, info.FirstBytes
	return cfg
}

// dropUnused removes a model that came with a source, if it has no sources, nor holders of a dump that sources may
// still take. s.changing is held.
func (s *Service) dropUnused(m *model) {
	if m.configured || s.hasUnclaimed(m.cfg.ModelKey) || slices.ContainsFunc(s.sources(), func(a *activeSource) bool { return a.model == m }) {
		return
	}
	models := maps.Clone(*s.models.Load())
	delete(models, m.cfg.ModelKey)
	s.models.Store(&models)
}

// ModelStatus is the state of a model.
type ModelStatus struct {
	ModelKey
	BlockSize  int     `json:"block_size"`
	Configured bool    `json:"configured"`
	Pool       *string `json:"pool,omitzero"` // whose store Loadable asks, nil if there is none
	// HashesDiffer: live sources hash otherwise than the model's Hash says, and none is known to hash so. Queries by tokens
	// find little or nothing.
	HashesDiffer bool `json:"hashes_differ"`
	fleet.Stats
	Holders []fleet.HolderStatus `json:"holders"`
}

// NumStale returns the number of holders that count for nothing but what is predicted.
func (s *ModelStatus) NumStale() int {
	n := 0
	for i := range s.Holders {
		if s.Holders[i].Stale {
			n++
		}
	}
	return n
}

// modelNames returns the names of a tenant's models, in order.
func (s *Service) modelNames(tenant string) (names []string) {
	for key := range *s.models.Load() {
		if key.Tenant == tenant {
			names = append(names, key.Name)
		}
	}
	slices.Sort(names)
	return names
}

// Models returns the state of all models, by tenant and name. The caller owns the result.
func (s *Service) Models() []ModelStatus {
	var list []ModelStatus
	for _, m := range *s.models.Load() {
		m.locked(func() { m.dropExpired(time.Now()) })
		f := m.fleet.Load()
		st := ModelStatus{
			ModelKey: m.cfg.ModelKey, BlockSize: m.cfg.Fleet.BlockSize, Configured: m.configured, Pool: m.poolName(),
			HashesDiffer: s.unsureOf(m).noneAgrees(), Stats: f.Stats(), Holders: f.Holders(),
		}
		list = append(list, st)
	}
	slices.SortFunc(list, func(a, b ModelStatus) int {
		return cmp.Or(strings.Compare(a.Tenant, b.Tenant), strings.Compare(a.Name, b.Name))
	})
	return list
}

// check returns ErrField unless both names of a model are some. field is that of the model's name.
func (k ModelKey) check(field string) error {
	return cmp.Or(checkName(field, k.Name), checkName("tenant_id", k.Tenant))
}
