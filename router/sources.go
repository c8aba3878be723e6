package router

import (
	"errors"
	"fmt"
	"time"

	"github.com/hitline/hitline/router/events"
	"github.com/hitline/hitline/router/fleet"
)

// activeSource is a source that is followed, and the holder that it fills.
type activeSource struct {
	source     Source
	registered bool
	model      *model
	holder     *fleet.Holder
}

// Add follows a source of the configuration. The model is made if there is none. It fails with the errors of this
// package, with fleet.ErrExists if another source fills the holder, or as events.Manager.Add does.
func (s *Service) Add(src Source) error { return s.follow(src, false, s.manager.Add) }

// Register is Add for a source that a client names: events.ErrNotAllowed refuses endpoints that are not allowed.
func (s *Service) Register(src Source) error { return s.follow(src, true, s.manager.Register) }

// follow follows a source by start, a method of the manager.
func (s *Service) follow(src Source, registered bool, start func(events.Config, events.NewHolder) error) error {
	src.SetDefaults()
	if err := src.Validate(); err != nil {
		return err
	}
	if registered {
		if err := s.replica.loadingError(); err != nil {
			return err
		}
	}
	s.changing.Lock()
	defer s.changing.Unlock()
	if loaded := s.takeLoaded(&src); loaded != nil {
		err := s.begin(src, loaded.checkpoint, registered, start)
		switch {
		case err != nil:
			s.returnLoaded(loaded)
		case !loaded.info.Stale:
			s.replica.addResumed(src.Name)
		}
		if !errors.Is(err, events.ErrCheckpoint) {
			return err
		}
		s.log.Warn("router: a source begins anew", "source", src.Name, "reason", err)
	}
	return s.begin(src, nil, registered, start)
}

// begin follows a source, from a checkpoint on if there is one. s.changing is held.
func (s *Service) begin(src Source, resume *events.Checkpoint, registered bool, start func(events.Config, events.NewHolder) error) error {
	a := &activeSource{source: src, registered: registered}
	cfg := src.config()
	cfg.Resume, cfg.Logger, cfg.MaxPayload, cfg.MaxBlocks = resume, s.log, s.cfg.MaxPayload, s.maxBlocks(src.ModelKey())
	err := start(cfg, func(events.Config) (events.Holder, error) { return s.newHolder(a, resume != nil) })
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.releaseHolder(a)
		return err
	}
	s.active[src.Name] = a
	return nil
}

// maxBlocks returns how many blocks a holder of a model may have.
func (s *Service) maxBlocks(key ModelKey) int {
	if m := (*s.models.Load())[key]; m != nil {
		return m.cfg.Fleet.MaxBlocks
	}
	return s.cfg.Fleet.MaxBlocks
}

// newHolder makes the holder of a source, and its model if there is none. On an error a has what was made.
func (s *Service) newHolder(a *activeSource, resumes bool) (events.Holder, error) {
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
	if a.holder, err = m.claim(state, a.source.ID(), resumes); err != nil {
		return nil, err
	}
	return a.holder, nil
}

// claim returns the holder of a source: one that no source fills, with what is predicted or what a dump had, or a new
// one.
func (m *model) claim(state *modelState, id fleet.ID, resumes bool) (*fleet.Holder, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if resumes {
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
		return fmt.Errorf("%w: model %q, engine %.40q, rank %d", events.ErrNoSource, m.cfg.Name, id.Engine, id.Rank)
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
		if a.model == m && a.source.ID() == id {
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
			Status: st, Model: a.source.Model, Tenant: a.source.Tenant, Engine: a.source.Engine, Rank: a.source.Rank,
			Registered: a.registered,
		})
	}
	return list
}
