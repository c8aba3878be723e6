package router

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/hitline/hitline/router/events"
	"github.com/hitline/hitline/router/fleet"
)

// Errors of sources.
var (
	ErrNotAllowed = errors.New("not an endpoint that register allows")
	ErrExists     = errors.New("has a source already")
	ErrNoSource   = errors.New("there is no such source")
	ErrConfigured = errors.New("the source is one of the configuration")
	ErrClosed     = errors.New("the service is closed")
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
func (s *Service) Add(src Source) error { return s.follow(src, false, true) }

// Check returns what Add says of a source by its fields and by its model, if there is one. It follows nothing.
func (s *Service) Check(src Source) error {
	src.SetDefaults()
	if names := s.modelNames(src.Tenant); src.Model == "" && len(names) > 0 {
		return badField(ErrField, "model", "has no model; give one of %q, or the name of another", names)
	}
	if err := src.Validate(); err != nil {
		return err
	}
	if m := (*s.models.Load())[src.ModelKey()]; m != nil {
		return m.checkSource(&src)
	}
	return nil
}

// Register is Add for a source that a client names: its endpoints must be allowed, and it cannot bind, otherwise it
// fails with ErrNotAllowed. It replaces other registered sources of the same rank, such as an engine that came back at a
// new address, and those of its tenant that follow the same address, such as of an engine that is gone: their blocks are
// dropped. The same source again changes nothing; what it leaves out is the model's. If it fails, those it would replace are
// followed on, or anew.
func (s *Service) Register(src Source) error {
	if s.loading.Load() {
		return ErrLoading
	}
	return s.follow(src, true, false)
}

// follow follows the source of each rank that src stands for. If one fails, it follows none. It fails with ErrLoading while
// Start runs, unless whileLoading is set.
func (s *Service) follow(src Source, registered, whileLoading bool) error {
	src.SetDefaults()
	if err := s.Check(src); err != nil {
		return err
	}
	ranks, err := src.EachRank()
	if err != nil {
		return err
	}
	if registered {
		if err := s.checkAllowed(ranks); err != nil {
			return err
		}
	}
	s.changing.Lock()
	defer s.changing.Unlock()
	if !whileLoading && s.loading.Load() {
		return ErrLoading
	}
	ranks, replaced, err := s.checkFree(ranks, registered)
	if err != nil || len(ranks) == 0 {
		return err
	}
	m, err := s.modelOf(&ranks[0], s.numGoing(replaced))
	if err != nil {
		return err
	}
	defer s.dropUnused(m)
	for _, a := range replaced {
		s.stop(a)
		defer s.dropUnused(a.model)
	}
	for i, rank := range ranks {
		if err := s.followRank(rank, registered); err != nil {
			for _, begun := range ranks[:i] {
				s.stop(s.active[begun.Name])
			}
			s.restore(replaced)
			return err
		}
	}
	return nil
}

// restore follows sources that were stopped again. They begin anew. s.changing is held.
func (s *Service) restore(stopped []*activeSource) {
	for _, a := range stopped {
		if err := s.start(a.Source, nil, a.registered); err != nil {
			s.log.Warn("router: a source is not followed any more", "source", a.Name, "reason", err)
		}
	}
}

// followRank follows src. If a dump had its holder, it goes on from there. s.changing is held.
func (s *Service) followRank(src Source, registered bool) error {
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

// checkFree checks sources that come together. It returns those that are not followed yet, and the registered ones that
// they replace. It fails if a name or a holder has another source, or if too many are registered. s.changing is held.
func (s *Service) checkFree(ranks []Source, registered bool) (begin []Source, replaced []*activeSource, err error) {
	if s.closed {
		return nil, nil, ErrClosed
	}
	list := s.sources()
	for _, src := range ranks {
		i := slices.IndexFunc(list, func(a *activeSource) bool { return a.hasRankOf(&src) })
		switch {
		case i < 0:
			begin = append(begin, src)
		case !registered:
			return nil, nil, fmt.Errorf("rank %d of engine %q %w", src.Rank, src.Engine, ErrExists)
		case list[i].isSame(src): // it stays
		case !list[i].registered:
			return nil, nil, fmt.Errorf("%w: %q, with another address or other fields", ErrConfigured, list[i].Name)
		default:
			begin = append(begin, src)
		}
	}
	n := 0
	for _, a := range list {
		met := slices.ContainsFunc(begin, func(src Source) bool { return a.hasRankOf(&src) || a.hasAddressOf(&src) })
		named := slices.ContainsFunc(begin, func(src Source) bool { return src.Name == a.Name })
		switch {
		case registered && a.registered && met:
			replaced = append(replaced, a)
		case named:
			return nil, nil, fmt.Errorf("the name %q %w", a.Name, ErrExists)
		case a.registered:
			n++
		}
	}
	if registered && n+len(begin) > s.cfg.MaxSources {
		return nil, nil, fmt.Errorf("%w sources: %d are registered", ErrTooMany, n+len(replaced))
	}
	return begin, replaced, nil
}

// isSame reports whether src says of a what is known. What it leaves out is the model's.
func (a *activeSource) isSame(src Source) bool {
	suits := a.model.checkSource(&src) == nil
	src.BlockSize, src.Type = a.BlockSize, a.Type
	return suits && src == a.Source
}

// Follows reports whether each rank of src is followed as src says, so that Register would change nothing.
func (s *Service) Follows(src Source) bool {
	src.SetDefaults()
	ranks, err := src.EachRank()
	if err != nil {
		return false
	}
	list := s.sources()
	return !slices.ContainsFunc(ranks, func(rank Source) bool {
		return !slices.ContainsFunc(list, func(a *activeSource) bool { return a.isSame(rank) })
	})
}

// hasRankOf reports whether a has the holder of src.
func (a *activeSource) hasRankOf(src *Source) bool {
	return a.ModelKey() == src.ModelKey() && a.ID() == src.ID()
}

// hasAddressOf reports whether a and src follow one address in one tenant. A publisher may tell engines apart by topics,
// but not at its replay socket.
func (a *activeSource) hasAddressOf(src *Source) bool {
	sameTopic := strings.HasPrefix(a.Topic, src.Topic) || strings.HasPrefix(src.Topic, a.Topic)
	return a.Tenant == src.Tenant && (a.Endpoint == src.Endpoint && sameTopic || src.Replay != "" && a.Replay == src.Replay)
}

// start follows a source, from where a dump had it if that is given. After an error the caller drops the model if it is not
// used. s.changing is held.
func (s *Service) start(src Source, from *dumpedSource, registered bool) error {
	m, err := s.modelOf(&src, 0)
	if err != nil {
		return err
	}
	a := &activeSource{Source: src, registered: registered, model: m}
	a.catchesUp = from != nil && !from.info.Stale
	if err := s.startFollower(a, from); err != nil {
		a.end()
		return err
	}
	s.mu.Lock()
	s.active[a.Name] = a
	s.mu.Unlock()
	s.dropUnfollowed(func(u *Source) bool { return a.hasRankOf(u) || registered && a.hasAddressOf(u) })
	m.changed()
	return nil
}

// startFollower makes the holder of a source, and follows from where a dump had it if that is given. On an error a has
// what was made.
func (s *Service) startFollower(a *activeSource, from *dumpedSource) error {
	var err error
	if a.holder, err = a.model.claim(a.ID(), from != nil); err != nil {
		return err
	}
	cfg := a.config()
	cfg.Logger, cfg.Changed = s.log, a.model.changed
	cfg.MaxPayload, cfg.Memory, cfg.CPU = s.cfg.MaxPayload, s.memory, s.cfg.CPU
	if a.hashes = a.model.newHashCheck(s.log.With("source", a.Name, "model", a.Model, "tenant", a.Tenant)); a.hashes != nil {
		cfg.CheckFirst, cfg.Cleared = a.hashes.check, a.hashes.reset
	}
	if from != nil {
		cfg.Resume = from.checkpoint
		if a.hashes != nil && reflect.DeepEqual(from.info.Agrees, a.model.cfg.Hash) {
			a.hashes.state = HashesAgree // until the replay shows another engine
		}
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

// Unregister ends a source that was registered and waits for it, and drops its holder. A source of a dump that is not
// followed is unsure no longer. It fails with ErrField, ErrNoModel, ErrNoSource, ErrConfigured, ErrLoading or ErrClosed.
func (s *Service) Unregister(key ModelKey, id fleet.ID) error {
	key = key.withDefaults()
	if err := cmp.Or(key.check("model"), checkID(id)); err != nil {
		return err
	}
	if s.loading.Load() {
		return ErrLoading
	}
	s.changing.Lock()
	defer s.changing.Unlock()
	if s.dropUnfollowed(func(u *Source) bool { return u.ModelKey() == key && u.ID() == id }) {
		return nil
	}
	m, err := s.find(key, nil)
	if err != nil {
		return err
	}
	list := s.sources()
	i := slices.IndexFunc(list, func(a *activeSource) bool { return a.model == m && a.ID() == id })
	switch {
	case s.closed:
		return ErrClosed
	case s.loading.Load():
		return ErrLoading
	case i < 0:
		return fmt.Errorf("%w: model %q, engine %.40q, rank %d", ErrNoSource, m.cfg.Name, id.Engine, id.Rank)
	case !list[i].registered:
		return fmt.Errorf("%w: %q", ErrConfigured, list[i].Name)
	}
	s.stop(list[i])
	s.dropUnused(m)
	return nil
}

// RegisteredRanks returns the ranks of an engine that Unregister can end, in order.
func (s *Service) RegisteredRanks(key ModelKey, engine string) (ranks []int) {
	key = key.withDefaults()
	for _, a := range s.sources() {
		if a.registered && a.ModelKey() == key && a.Engine == engine {
			ranks = append(ranks, a.Rank)
		}
	}
	for _, id := range s.unfollowedOf(key) {
		if id.Engine == engine {
			ranks = append(ranks, id.Rank)
		}
	}
	slices.Sort(ranks)
	return ranks
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
	if dropped := a.holder.Dropped(); dropped > st.Dropped { // since its last batch
		st.Dropped, st.Complete, st.Blocks = dropped, false, int64(a.holder.Len())
	}
	status := SourceStatus{Status: st, Model: a.Model, Tenant: a.Tenant, Engine: a.Engine, Rank: a.Rank, Registered: a.registered}
	status.Hashes, status.HashesReason = a.hashes.result()
	return status
}

// pauseAll pauses the sources, until the caller resumes them: none of their holders changes. It returns where they are. It
// waits for batches in progress until ctx ends, and leaves out a source that is still busy then, or has just come. It first
// pauses the sources that are not busy, so that none is paused for longer than the slowest one needs.
func (s *Service) pauseAll(ctx context.Context) map[*activeSource]*events.Checkpoint {
	paused := map[*activeSource]*events.Checkpoint{}
	noWait, cancel := context.WithCancel(ctx)
	cancel()
	waiting := s.sources()
	for _, until := range []context.Context{noWait, ctx} {
		waiting = slices.DeleteFunc(waiting, func(a *activeSource) bool {
			checkpoint, err := a.follower.Pause(until)
			if err == nil {
				paused[a] = checkpoint
			}
			return err == nil
		})
	}
	return paused
}
