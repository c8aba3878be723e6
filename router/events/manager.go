package events

import (
	"errors"
	"fmt"
	"sync"
)

// Errors of a Manager.
var (
	ErrNotAllowed = errors.New("events: the endpoint is not on the list of those that may be registered")
	ErrExists     = errors.New("events: there is a source of this name")
	ErrNoSource   = errors.New("events: there is no source of this name")
	ErrTooMany    = errors.New("events: too many sources")
	ErrConfigured = errors.New("events: the source is one of the configuration")
	ErrClosed     = errors.New("events: the manager is closed")
)

// ManagerConfig configures a Manager.
type ManagerConfig struct {
	// Allow are the endpoints that Register may connect to: tcp://HOST:PORT, where HOST may
	// be a CIDR network (IPv6 in brackets) and PORT a range (5557-5564) or *; or an
	// ipc://path. Empty: Register is refused. Names are compared, never resolved.
	Allow []string
	// MaxSources bounds those that are registered; 0: DefaultMaxSources.
	MaxSources int
}

// DefaultMaxSources is how many sources may be registered.
const DefaultMaxSources = 1024

// Manager follows sources that come and go. Safe for concurrent use.
type Manager struct {
	cfg     ManagerConfig
	allow   allowList
	pausing pauseLock // held by Pause

	mu         sync.Mutex
	sources    map[string]*managedSource
	registered int // of sources
	closed     bool
	changing   sync.WaitGroup // calls of Add, Register and Unregister that start or stop a Follower
}

// managedSource is one source. A name stays reserved until its Follower is closed.
type managedSource struct {
	registered bool
	follower   *Follower // nil while it is being started or stopped
}

// NewManager checks cfg.
func NewManager(cfg ManagerConfig) (*Manager, error) {
	if cfg.MaxSources < 0 {
		return nil, errors.New("events: a negative number of sources")
	}
	setDefault(&cfg.MaxSources, DefaultMaxSources)
	allow, err := newAllowList(cfg.Allow)
	if err != nil {
		return nil, err
	}
	return &Manager{cfg: cfg, allow: allow, pausing: newPauseLock(), sources: make(map[string]*managedSource)}, nil
}

// NewHolder returns what a source fills. It is called once, with the defaults of the Config set, when
// the name of the source is free.
type NewHolder func(Config) (Holder, error)

// Add follows a source of the configuration, which fills what newHolder returns.
func (m *Manager) Add(cfg Config, newHolder NewHolder) error { return m.add(cfg, newHolder, false) }

// Register is Add for a source that a client names: its endpoints must be allowed, and it cannot
// bind, otherwise it fails with ErrNotAllowed. What is no endpoint at all is api.ErrConfig.
func (m *Manager) Register(cfg Config, newHolder NewHolder) error {
	if err := cfg.check(); err != nil {
		return err
	}
	if cfg.Bind {
		return fmt.Errorf("%w: a source that is registered cannot bind %q", ErrNotAllowed, cfg.Endpoint)
	}
	for _, endpoint := range []string{cfg.Endpoint, cfg.Replay} {
		if endpoint != "" && !m.allow.allows(endpoint) {
			return fmt.Errorf("%w: %q", ErrNotAllowed, endpoint)
		}
	}
	return m.add(cfg, newHolder, true)
}

// add reserves the name, then starts to follow.
func (m *Manager) add(cfg Config, newHolder NewHolder, registered bool) error {
	if newHolder == nil {
		return errors.New("events: a source needs NewHolder")
	}
	if err := cfg.check(); err != nil {
		return err
	}
	if err := m.reserve(cfg.Name, registered); err != nil {
		return err
	}
	defer m.changing.Done()
	f, err := startSource(cfg, newHolder)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		m.removeLocked(cfg.Name)
		return err
	}
	m.sources[cfg.Name].follower = f
	return nil
}

func (m *Manager) reserve(name string, registered bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.closed:
		return ErrClosed
	case m.sources[name] != nil:
		return fmt.Errorf("%w: %q", ErrExists, name)
	case registered && m.registered >= m.cfg.MaxSources:
		return fmt.Errorf("%w: %d are registered", ErrTooMany, m.registered)
	}
	m.sources[name] = &managedSource{registered: registered}
	if registered {
		m.registered++
	}
	m.changing.Add(1)
	return nil
}

func startSource(cfg Config, newHolder NewHolder) (*Follower, error) {
	holder, err := newHolder(cfg)
	if err != nil {
		return nil, err
	}
	f, err := NewFollower(cfg, holder)
	if err != nil {
		return nil, err
	}
	if err := f.Start(); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// removeLocked removes a name; m.mu is held.
func (m *Manager) removeLocked(name string) {
	if m.sources[name].registered {
		m.registered--
	}
	delete(m.sources, name)
}

// Unregister stops a source that was registered, and waits for it. Those of the configuration
// stay: it fails with ErrConfigured.
func (m *Manager) Unregister(name string) error {
	m.mu.Lock()
	s := m.sources[name]
	var err error
	switch {
	case m.closed: // Close stops all sources, and may be waiting for changing: none may be added
		err = ErrClosed
	case s == nil || s.registered && s.follower == nil:
		err = fmt.Errorf("%w: %q", ErrNoSource, name)
	case !s.registered:
		err = fmt.Errorf("%w: %q", ErrConfigured, name)
	}
	if err != nil {
		m.mu.Unlock()
		return err
	}
	f := s.follower
	s.follower = nil
	m.changing.Add(1) // Close waits for us
	m.mu.Unlock()

	defer m.changing.Done()
	f.Close()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.removeLocked(name)
	return nil
}

// Sources returns the state of all sources by name.
func (m *Manager) Sources() []Status {
	followers := m.followers()
	list := make([]Status, len(followers))
	for i, f := range followers {
		list[i] = f.Status()
	}
	return list
}

// Close stops all sources and waits for them. After it, Add, Register and Unregister fail with
// ErrClosed.
func (m *Manager) Close() {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.changing.Wait()
	m.mu.Lock()
	var open []*Follower
	for _, s := range m.sources {
		if s.follower != nil {
			open = append(open, s.follower)
		}
	}
	m.mu.Unlock()
	var closing sync.WaitGroup
	for _, f := range open {
		closing.Go(f.Close)
	}
	closing.Wait()
}
