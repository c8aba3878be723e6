package feed

import (
	"cmp"
	"errors"
	"fmt"
	"sync"

	"github.com/hitline/hitline/events"
	"github.com/hitline/hitline/lookup"
)

// ErrNoPool refuses a source whose pool there is not. Other errors of Sources are those of events.Manager and
// New.
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
	// Allow and MaxSources are those of events.ManagerConfig.
	Allow      []string
	MaxSources int
}

// Sources are the engines whose events fill the pools of a server. Safe for concurrent use.
type Sources struct {
	cfg     SourcesConfig
	manager *events.Manager

	mu      sync.Mutex
	feeds   map[string]*fed // by the name of the source
	pending *fed            // that add follows now; newHolder sets its holder
}

// fed is a source and the holder that fills its pool.
type fed struct {
	source     Source
	registered bool
	holder     *Holder
}

// NewSources returns Sources without any. It fails as events.NewManager does.
func NewSources(cfg SourcesConfig) (*Sources, error) {
	s := &Sources{cfg: cfg, feeds: map[string]*fed{}}
	var err error
	s.manager, err = events.NewManager(events.ManagerConfig{NewHolder: s.newHolder, Allow: cfg.Allow, MaxSources: cfg.MaxSources})
	return s, err
}

// newHolder makes the holder of the pending source. The manager calls it inside of Add or Register.
func (s *Sources) newHolder(cfg events.Config) (events.Holder, error) {
	f := s.pending
	service := s.cfg.Service(f.source.Pool)
	if service == nil {
		return nil, fmt.Errorf("%w: %q", ErrNoPool, f.source.Pool)
	}
	holder, err := New(service, Config{Source: cfg.Name, Media: f.source.Media, MaxBlocks: cfg.MaxBlocks})
	if err != nil {
		return nil, err
	}
	f.holder = holder
	return holder, nil
}

// Add follows a source of the configuration. Its pool is emptied, and clients cannot change it any more.
func (s *Sources) Add(source Source) error {
	return s.add(&fed{source: source}, s.manager.Add)
}

// Register is Add for a source that a client names: events.ErrNotAllowed refuses endpoints that are not
// allowed.
func (s *Sources) Register(source Source) error {
	return s.add(&fed{source: source, registered: true}, s.manager.Register)
}

// add follows a source by follow, a method of the manager.
func (s *Sources) add(f *fed, follow func(events.Config) error) error {
	if f.source.Name == "" {
		f.source.Name = cmp.Or(f.source.Bind, f.source.Connect)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending = f
	err := follow(f.source.Config)
	s.pending = nil
	if err == nil {
		s.feeds[f.source.Name] = f
	} else if f.holder != nil {
		f.holder.Close()
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
	if f := s.feeds[name]; f != nil {
		f.holder.Close()
		delete(s.feeds, name)
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
		if f := s.feeds[st.Name]; f != nil { // otherwise it has just come or gone
			list = append(list, SourceStatus{Status: st, Pool: f.source.Pool, Registered: f.registered})
		}
	}
	return list
}

// Close ends all sources and waits for them. Their pools are empty then.
func (s *Sources) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.manager.Close()
	for _, f := range s.feeds {
		f.holder.Close()
	}
	clear(s.feeds)
}
