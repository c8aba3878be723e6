package feed

import (
	"cmp"
	"errors"
	"fmt"
	"sync"

	"github.com/hitline/hitline/events"
	"github.com/hitline/hitline/lookup"
)

// ErrNoPool refuses a source whose pool does not exist. Other errors of Sources are those of events.Manager
// and New.
var ErrNoPool = errors.New("feed: there is no such pool")

// Source is a publisher of KV events and the pool that it fills.
type Source struct {
	events.Config
	Pool  string   // "": the server's own
	Media []string // see Config.Media
}

// SourceStatus is the state of a source.
type SourceStatus struct {
	events.Status
	Pool       string `json:"pool"` // "": the server's own
	Registered bool   `json:"registered"`
}

// SourcesConfig configures Sources.
type SourcesConfig struct {
	// Service returns the service of a pool by its name, nil if there is none that events may fill.
	Service func(pool string) *lookup.Service
	// Allow is that of events.ManagerConfig.
	Allow []string
}

// Sources are the engines whose events fill the pools of a server. Safe for concurrent use.
type Sources struct {
	cfg     SourcesConfig
	manager *events.Manager

	mu     sync.Mutex
	active map[string]*activeSource // by the name of the source
}

// activeSource is a source that is followed, and the holder that fills its pool.
type activeSource struct {
	source     Source
	registered bool
	holder     *Holder
}

// NewSources returns Sources without any. It fails as events.NewManager does.
func NewSources(cfg SourcesConfig) (*Sources, error) {
	s := &Sources{cfg: cfg, active: map[string]*activeSource{}}
	var err error
	s.manager, err = events.NewManager(events.ManagerConfig{Allow: cfg.Allow})
	return s, err
}

// newHolder makes the holder of a source.
func (s *Sources) newHolder(a *activeSource, cfg events.Config) (events.Holder, error) {
	service := s.cfg.Service(a.source.Pool)
	if service == nil {
		return nil, fmt.Errorf("%w: %q", ErrNoPool, a.source.Pool)
	}
	holder, err := New(service, Config{Source: cfg.Name, Media: a.source.Media, MaxBlocks: cfg.MaxBlocks})
	if err != nil {
		return nil, err
	}
	a.holder = holder
	return holder, nil
}

// Add follows a source of the configuration. Its pool is emptied, and clients cannot change it any more.
func (s *Sources) Add(source Source) error {
	return s.add(&activeSource{source: source}, s.manager.Add)
}

// Register is Add for a source that a client names: events.ErrNotAllowed refuses endpoints that are not
// allowed.
func (s *Sources) Register(source Source) error {
	return s.add(&activeSource{source: source, registered: true}, s.manager.Register)
}

// add follows a source by follow, a method of the manager.
func (s *Sources) add(a *activeSource, follow func(events.Config, events.NewHolder) error) error {
	if a.source.Name == "" {
		a.source.Name = cmp.Or(a.source.Bind, a.source.Connect)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	err := follow(a.source.Config, func(cfg events.Config) (events.Holder, error) { return s.newHolder(a, cfg) })
	if err == nil {
		s.active[a.source.Name] = a
	} else if a.holder != nil {
		a.holder.Close()
	}
	return err
}

// Unregister ends a source that was registered. Its pool is empty then, and clients may change it.
func (s *Sources) Unregister(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.manager.Unregister(name); err != nil {
		return err
	}
	if a := s.active[name]; a != nil {
		a.holder.Close()
		delete(s.active, name)
	}
	return nil
}

// Status returns the state of all sources by name. The caller owns the result.
func (s *Sources) Status() []SourceStatus {
	all := s.manager.Sources()
	list := make([]SourceStatus, 0, len(all))
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range all {
		if a := s.active[st.Name]; a != nil { // otherwise it has just come or gone
			list = append(list, SourceStatus{Status: st, Pool: a.source.Pool, Registered: a.registered})
		}
	}
	return list
}

// Close ends all sources and waits for them. Their pools are empty then.
func (s *Sources) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.manager.Close()
	for _, a := range s.active {
		a.holder.Close()
	}
	clear(s.active)
}
