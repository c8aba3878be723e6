package events

import "errors"

// Errors of a Manager.
var (
	ErrNotAllowed = errors.New("events: the endpoint is not on the list of those that may be registered")
	ErrExists     = errors.New("events: there is a source of this name")
	ErrNoSource   = errors.New("events: there is no source of this name")
	ErrTooMany    = errors.New("events: too many sources")
)

// ManagerConfig configures a Manager.
type ManagerConfig struct {
	// NewHolder returns what a source fills. It is called by Add and Register.
	NewHolder func(Config) (Holder, error)
	// Allow are the endpoints that Register may connect to: tcp://HOST:PORT, where HOST may
	// be a CIDR network and PORT a range (5557-5564) or *. Empty: Register is refused.
	Allow []string
	// MaxSources bounds those that are registered; 0: DefaultMaxSources.
	MaxSources int
}

// DefaultMaxSources is how many sources may be registered.
const DefaultMaxSources = 1024

// Manager follows sources that come and go. Safe for concurrent use.
type Manager struct{}

// NewManager checks cfg.
func NewManager(cfg ManagerConfig) (*Manager, error) { return &Manager{}, nil }

// Add follows a source of the configuration.
func (m *Manager) Add(cfg Config) error { return nil }

// Register is Add for a source that a client names: its endpoints must be allowed.
func (m *Manager) Register(cfg Config) error { return ErrNotAllowed }

// Unregister stops a source that was registered.
func (m *Manager) Unregister(name string) error { return ErrNoSource }

// Sources returns the state of all sources by name.
func (m *Manager) Sources() []Status { return nil }

// Close stops all sources and waits for them.
func (m *Manager) Close() {}
