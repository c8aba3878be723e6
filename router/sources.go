package router

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/hitline/hitline/router/events"
	"github.com/hitline/hitline/router/fleet"
)

// Engines of a source.
const (
	EngineVLLM   = "vllm"
	EngineSGLang = "sglang"
)

// Source is a publisher of KV events, and the holder that it fills.
type Source struct {
	events.Config
	ModelKey
	fleet.ID
	// BlockSize is the engine's hash block size in tokens; 0: the model's.
	BlockSize int
	// Type is EngineVLLM or EngineSGLang; "": the model's, or vLLM's if the source makes the model.
	Type string
}

// SourceStatus is the state of a source.
type SourceStatus struct {
	events.Status
	Model      string `json:"model"`
	Tenant     string `json:"tenant"`
	Engine     string `json:"instance"`
	Rank       int    `json:"rank"`
	Registered bool   `json:"registered"`
}

// activeSource is a source that is followed, and the holder that it fills.
type activeSource struct {
	source     Source
	registered bool
	model      *model
	holder     *fleet.Holder
}

// check checks what package events does not, and sets the defaults.
func (src *Source) check() error {
	src.ModelKey = src.ModelKey.withDefaults()
	src.Config.Name = cmp.Or(src.Config.Name, src.Bind, src.Connect)
	if err := errors.Join(
		checkName("model", src.ModelKey.Name), checkName("tenant", src.Tenant), checkID(src.ID),
	); err != nil {
		return err
	}
	switch {
	case src.Type != "" && src.Type != EngineVLLM && src.Type != EngineSGLang:
		return fmt.Errorf("%w: %.40q; known are %s and %s", ErrOtherEngine, src.Type, EngineVLLM, EngineSGLang)
	case src.BlockSize < 0 || src.BlockSize > math.MaxInt32:
		return fmt.Errorf("%w: %d tokens", ErrOtherBlock, src.BlockSize)
	}
	return nil
}

// MaxRank bounds data-parallel ranks: engines have some hundreds.
const MaxRank = math.MaxUint16

func checkID(id fleet.ID) error {
	if id.Rank < 0 || id.Rank > MaxRank {
		return fmt.Errorf("%w, not %d", ErrRank, id.Rank)
	}
	return checkName("instance", id.Engine)
}

// Add follows a source of the configuration. The model is made if there is none. It fails with the errors of this
// package, with fleet.ErrExists if another source fills the holder, or as events.Manager.Add does.
func (s *Service) Add(src Source) error { return s.follow(src, false, s.manager.Add) }

// Register is Add for a source that a client names: events.ErrNotAllowed refuses endpoints that are not allowed.
func (s *Service) Register(src Source) error { return s.follow(src, true, s.manager.Register) }

// follow follows a source by start, a method of the manager.
func (s *Service) follow(src Source, registered bool, start func(events.Config, events.NewHolder) error) error {
	if err := src.check(); err != nil {
		return err
	}
	if registered {
		if err := s.replica.loadingError(); err != nil {
			return err
		}
	}
	src.Logger = cmp.Or(src.Logger, s.log)
	s.changing.Lock()
	defer s.changing.Unlock()
	if loaded := s.takeLoaded(&src); loaded != nil {
		src.Resume = loaded.checkpoint
		err := s.begin(src, registered, start)
		switch {
		case err != nil:
			s.returnLoaded(loaded)
		case !loaded.info.Stale:
			s.replica.addResumed(src.Config.Name)
		}
		if !errors.Is(err, events.ErrCheckpoint) {
			return err
		}
		s.log.Warn("router: a source begins anew", "source", src.Config.Name, "reason", err)
		src.Resume = nil
	}
	return s.begin(src, registered, start)
}

// begin follows a source, from src.Resume on if that is set. s.changing is held.
func (s *Service) begin(src Source, registered bool, start func(events.Config, events.NewHolder) error) error {
	a := &activeSource{source: src, registered: registered}
	err := start(src.Config, func(events.Config) (events.Holder, error) { return s.newHolder(a) })
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.releaseHolder(a)
		return err
	}
	a.source.Resume = nil // it may be large
	s.active[src.Config.Name] = a
	return nil
}

// newHolder makes the holder of a source, and its model if there is none. On an error a has what was made.
func (s *Service) newHolder(a *activeSource) (events.Holder, error) {
	s.mu.Lock()
	m, err := s.modelOf(&a.source)
	if err == nil {
		a.model = m
		m.sources++
	}
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	state, err := m.needBlockSize(a.source.BlockSize)
	if err != nil {
		return nil, err
	}
	if a.holder, err = m.claim(state, &a.source); err != nil {
		return nil, err
	}
	return a.holder, nil
}

// claim returns the holder of a source: one that no source fills, with what is predicted or what a dump had, or a new
// one.
func (m *model) claim(state *modelState, src *Source) (*fleet.Holder, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	id := src.ID
	if src.Resume != nil {
		if h := state.fleet.Get(id); h != nil {
			return h, nil
		}
		return nil, fmt.Errorf("%w: its holder is gone", events.ErrCheckpoint)
	}
	if _, ok := m.unfed[id]; ok {
		delete(m.unfed, id)
		if h := state.fleet.Get(id); h != nil {
			return h, nil
		}
	}
	h, err := state.fleet.Add(id)
	if errors.Is(err, fleet.ErrTooMany) && m.dropUnfed(state) {
		h, err = state.fleet.Add(id)
	}
	return h, err
}

// dropUnfed drops the holder without a source that was predicted for longest ago: those that engines fill go first. It
// returns false if there is none. m.mu is held.
func (m *model) dropUnfed(state *modelState) bool {
	var first fleet.ID
	var until time.Time
	for id, t := range m.unfed {
		if until.IsZero() || t.Before(until) {
			first, until = id, t
		}
	}
	if until.IsZero() {
		return false
	}
	delete(m.unfed, first)
	if h := state.fleet.Get(first); h != nil {
		h.Close()
	}
	return true
}

// releaseHolder closes what newHolder has made. s.mu is held.
func (s *Service) releaseHolder(a *activeSource) {
	if a.holder != nil {
		a.holder.Close()
	}
	if a.model != nil {
		a.model.sources--
		s.dropUnused(a.model)
	}
}

// Unregister ends a source that was registered and waits for it, and drops its holder. It fails with ErrNoModel,
// events.ErrNoSource or events.ErrConfigured.
func (s *Service) Unregister(key ModelKey, id fleet.ID) error {
	m, err := s.find(key)
	if err != nil {
		return err
	}
	s.changing.Lock()
	defer s.changing.Unlock()
	name, a := s.sourceOf(m, id)
	if a == nil {
		return fmt.Errorf("%w: model %q, instance %.40q, rank %d", events.ErrNoSource, m.cfg.Name, id.Engine, id.Rank)
	}
	if err := s.manager.Unregister(name); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.active, name)
	s.releaseHolder(a)
	return nil
}

// sourceOf returns the source that fills a holder, and its name.
func (s *Service) sourceOf(m *model, id fleet.ID) (string, *activeSource) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, a := range s.active {
		if a.model == m && a.source.ID == id {
			return name, a
		}
	}
	return "", nil
}

// Status returns the state of all sources by name. The caller owns the result.
func (s *Service) Status() []SourceStatus {
	all := s.manager.Sources()
	list := make([]SourceStatus, 0, len(all))
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range all {
		a := s.active[st.Name]
		if a == nil {
			continue // it has just come or gone
		}
		list = append(list, SourceStatus{
			Status: st, Model: a.source.ModelKey.Name, Tenant: a.source.Tenant, Engine: a.source.Engine, Rank: a.source.Rank,
			Registered: a.registered,
		})
	}
	return list
}
