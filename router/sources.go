package router

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/hitline/hitline/router/events"
	"github.com/hitline/hitline/router/fleet"
)

// Errors of sources.
var (
	ErrNotAllowed = errors.New("router: not an endpoint that may be registered")
	ErrExists     = errors.New("has a source already")
	ErrNoSource   = errors.New("router: there is no such source")
	ErrConfigured = errors.New("router: the source is one of the configuration")
	ErrClosed     = errors.New("router: the service is closed")
)

// DefaultMaxSources is how many sources may be registered.
const DefaultMaxSources = 1024

// activeSource is a source that is followed.
type activeSource struct {
	Source
	registered bool
	model      *model
	holder     *fleet.Holder
	follower   *events.Follower
	hashes     *hashCheck // nil: the model has no Hash
	catchesUp  bool       // it goes on from a dump, and Ready waits for it; Service.mu guards it
}

// Add follows a source of the configuration. The model is made if there is none. It fails with the errors of this
// package, with fleet.ErrExists if the caller has made the holder, or as events.Follow does.
func (s *Service) Add(src Source) error { return s.follow(src, false) }

// Check returns what Add says of a source by its fields and by its model, if there is one. It follows nothing.
func (s *Service) Check(src Source) error {
	src.SetDefaults()
	if err := src.Validate(); err != nil {
		return err
	}
	if m := (*s.models.Load())[src.ModelKey()]; m != nil {
		return m.checkSource(&src)
	}
	return nil
}

// Register is Add for a source that a client names: its endpoints must be allowed, and it cannot bind, otherwise it
// fails with ErrNotAllowed. It replaces another registered source of the same rank, such as an engine that came back at a
// new address: its blocks are dropped. The same source again changes nothing.
func (s *Service) Register(src Source) error { return s.follow(src, true) }

// follow follows the source of each rank that src stands for. If one fails, it follows none.
func (s *Service) follow(src Source, registered bool) error {
	src.SetDefaults()
	if err := s.Check(src); err != nil {
		return err
	}
	ranks, err := src.EachRank()
	if err != nil {
		return err
	}
	if registered {
		if s.loading.Load() {
			return ErrLoading
		}
		if err := s.checkAllowed(ranks); err != nil {
			return err
		}
	}
	s.changing.Lock()
	defer s.changing.Unlock()
	replaced := make([]*activeSource, len(ranks))
	for i := range ranks {
		if replaced[i], err = s.checkFree(&ranks[i], registered, len(ranks)); err != nil {
			return err
		}
	}
	for i, rank := range ranks {
		if err := s.followRank(rank, replaced[i], registered); err != nil {
			for j, begun := range ranks[:i] {
				if a := s.active[begun.Name]; a != replaced[j] {
					s.remove(a)
				}
			}
			return err
		}
	}
	return nil
}

// followRank ends the source that is replaced, unless it is nil or equal, and follows src. If a dump had its holder, it
// goes on from there. s.changing is held.
func (s *Service) followRank(src Source, replaced *activeSource, registered bool) error {
	if replaced != nil {
		if reflect.DeepEqual(replaced.Source, src) {
			return nil
		}
		s.stop(replaced)
		defer s.dropUnused(replaced.model)
	}
	key := holderKey{src.ModelKey(), src.ID()}
	from := s.unclaimed[key]
	if from == nil {
		return s.start(src, nil, registered)
	}
	err := s.start(src, from, registered)
	if errors.Is(err, events.ErrCheckpoint) {
		s.log.Warn("router: a source begins anew", "source", src.Name, "reason", err)
		err = s.start(src, nil, registered)
	}
	if err == nil {
		delete(s.unclaimed, key)
	}
	return err
}

func (s *Service) checkAllowed(ranks []Source) error {
	for _, src := range ranks {
		if src.Bind {
			return fmt.Errorf("%w: a source that is registered cannot bind %q", ErrNotAllowed, src.Endpoint)
		}
		for _, endpoint := range []string{src.Endpoint, src.Replay, src.KVEndpoint} {
			if endpoint != "" && !s.allow.allows(endpoint) {
				return fmt.Errorf("%w: %q", ErrNotAllowed, endpoint)
			}
		}
	}
	return nil
}

// checkFree checks one of several sources that come together. It returns the source that src replaces: a registered one
// of the same holder, or an equal one of the configuration. It fails if the name or the holder has another source, or
// if too many are registered. s.changing is held.
func (s *Service) checkFree(src *Source, registered bool, together int) (replaced *activeSource, err error) {
	if s.closed {
		return nil, ErrClosed
	}
	n := 0
	for _, a := range s.active {
		if a.registered {
			n++
		}
		if a.ModelKey() == src.ModelKey() && a.ID() == src.ID() {
			replaced = a
		}
	}
	named := s.active[src.Name]
	switch {
	case replaced != nil && !registered:
		return nil, fmt.Errorf("router: rank %d of engine %q %w", src.Rank, src.Engine, ErrExists)
	case replaced != nil && !replaced.registered && !reflect.DeepEqual(replaced.Source, *src):
		return nil, fmt.Errorf("%w: %q, with another address or other fields", ErrConfigured, replaced.Name)
	case named != nil && named != replaced:
		return nil, fmt.Errorf("router: the name %q %w", src.Name, ErrExists)
	case registered && replaced == nil && n+together > s.cfg.MaxSources:
		return nil, fmt.Errorf("%w sources: %d are registered", ErrTooMany, n)
	}
	return replaced, nil
}

// start follows a source, from where a dump had it if that is given. s.changing is held.
func (s *Service) start(src Source, from *dumpedSource, registered bool) error {
	m, err := s.modelOf(&src)
	if err != nil {
		return err
	}
	a := &activeSource{Source: src, registered: registered, model: m}
	var resume *events.Checkpoint
	if from != nil {
		resume, a.catchesUp = from.checkpoint, !from.info.Stale
	}
	if err := s.startFollower(a, resume); err != nil {
		a.end()
		s.dropUnused(m)
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active[a.Name] = a
	m.changed()
	return nil
}

// startFollower makes the holder of a source, and follows. On an error a has what was made.
func (s *Service) startFollower(a *activeSource, resume *events.Checkpoint) error {
	var err error
	if a.holder, err = a.model.claim(a.ID(), resume != nil); err != nil {
		return err
	}
	cfg := a.config()
	cfg.Resume, cfg.Logger, cfg.Changed = resume, s.log, a.model.changed
	cfg.MaxPayload, cfg.Memory, cfg.CPU, cfg.Listeners = s.cfg.MaxPayload, s.memory, s.cfg.CPU, &s.listeners
	if a.hashes = a.model.newHashCheck(s.log.With("source", a.Name, "model", a.Model, "tenant", a.Tenant)); a.hashes != nil {
		cfg.CheckFirst = a.hashes.check
	}
	a.follower, err = events.Follow(cfg, a.holder)
	return err
}

// end ends what startFollower has made, and waits for it. s.changing is held.
func (a *activeSource) end() {
	if a.follower != nil {
		a.follower.Close()
	}
	if a.holder != nil {
		a.model.locked(func() { a.model.dropHolder(a.ID()) })
	}
}

// stop ends a source. s.changing is held.
func (s *Service) stop(a *activeSource) {
	s.mu.Lock()
	delete(s.active, a.Name)
	s.mu.Unlock()
	a.end()
	a.model.changed()
}

// remove ends a source, and removes its model if that has no other. s.changing is held.
func (s *Service) remove(a *activeSource) {
	s.stop(a)
	s.dropUnused(a.model)
}

// Unregister ends a source that was registered and waits for it, and drops its holder. It fails with ErrField,
// ErrNoModel, ErrNoSource, ErrConfigured or ErrClosed.
func (s *Service) Unregister(key ModelKey, id fleet.ID) error {
	if err := cmp.Or(key.withDefaults().check("model"), checkID(id)); err != nil {
		return err
	}
	m, err := s.find(key, nil)
	if err != nil {
		return err
	}
	s.changing.Lock()
	defer s.changing.Unlock()
	list := s.sources()
	i := slices.IndexFunc(list, func(a *activeSource) bool { return a.model == m && a.ID() == id })
	switch {
	case s.closed:
		return ErrClosed
	case i < 0:
		return fmt.Errorf("%w: model %q, engine %.40q, rank %d", ErrNoSource, m.cfg.Name, id.Engine, id.Rank)
	case !list[i].registered:
		return fmt.Errorf("%w: %q", ErrConfigured, list[i].Name)
	}
	s.remove(list[i])
	return nil
}

// sources returns the sources by name.
func (s *Service) sources() []*activeSource {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]*activeSource, 0, len(s.active))
	for _, a := range s.active {
		list = append(list, a)
	}
	slices.SortFunc(list, func(a, b *activeSource) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// Status returns the state of all sources by name. The caller owns the result.
func (s *Service) Status() []SourceStatus {
	all := s.sources()
	list := make([]SourceStatus, len(all))
	for i, a := range all {
		list[i] = a.status()
	}
	return list
}

// status returns the state of a source.
func (a *activeSource) status() SourceStatus {
	st := a.follower.Status()
	if dropped, _ := a.holder.Report(); dropped > st.Dropped { // since its last batch
		st.Dropped, st.Complete, st.Blocks = dropped, false, int64(a.holder.Len())
	}
	status := SourceStatus{Status: st, Model: a.Model, Tenant: a.Tenant, Engine: a.Engine, Rank: a.Rank, Registered: a.registered}
	status.Hashes, status.HashesReason = a.hashes.result()
	return status
}

// pausedSource is a source between two batches, and where it is.
type pausedSource struct {
	*activeSource
	checkpoint *events.Checkpoint
}

// pauseAll pauses the sources, until the caller resumes them: none of their holders changes. It waits for batches in
// progress until ctx ends, and leaves out a source that is still busy then, or has just come. It first pauses the sources
// that are not busy, so that none is paused for longer than the slowest one needs.
func (s *Service) pauseAll(ctx context.Context) (paused []pausedSource) {
	noWait, cancel := context.WithCancel(ctx)
	cancel()
	waiting := s.sources()
	for _, until := range []context.Context{noWait, ctx} {
		waiting = slices.DeleteFunc(waiting, func(a *activeSource) bool {
			checkpoint, err := a.follower.Pause(until)
			if err == nil {
				paused = append(paused, pausedSource{a, checkpoint})
			}
			return err == nil
		})
	}
	return paused
}
