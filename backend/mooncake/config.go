package mooncake

import (
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/hitline/hitline/internal/fielderror"
)

// Defaults of Config.
const (
	DefaultTenant      = "default"
	DefaultConns       = 8
	DefaultDialTimeout = time.Second
)

// Config says where the masters are and how to talk with them. Zero fields mean
// the defaults.
type Config struct {
	// Masters are the addresses host:port of the masters' RPC ports, in any order:
	// the one that answers is the leader. At least one.
	Masters []string
	// Admin are the addresses host:port of the masters' admin ports, in any order, for
	// Keys. None by default.
	Admin []string
	// Tenant is whose keys are asked for; the engines' tenant_id. A master before
	// v0.3.12, or one without tenants, ignores it. DefaultTenant by default.
	Tenant string
	// Conns is how many connections there are at most, which is how many questions
	// the master is asked at a time. DefaultConns by default.
	Conns int
	// AllowReset lets Reset remove every key of the tenant, under all engines.
	AllowReset bool
	// DialTimeout bounds making a connection and the master's first answer on it,
	// beside the deadline of the call that needs it. DefaultDialTimeout by default.
	DialTimeout time.Duration
	// Logger gets a line when a leader is found and when there is none any longer.
	// Nothing is logged by default.
	Logger *slog.Logger
}

// withDefaults fills in what is zero and checks the rest.
func (c Config) withDefaults() (Config, error) {
	if c.Tenant == "" {
		c.Tenant = DefaultTenant
	}
	if c.Conns == 0 {
		c.Conns = DefaultConns
	}
	if c.DialTimeout == 0 {
		c.DialTimeout = DefaultDialTimeout
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c, c.validate()
}

func (c *Config) validate() error {
	if len(c.Masters) == 0 {
		return invalid("masters", "none is given")
	}
	for i, addr := range c.Masters {
		if err := checkAddr(addr); err != nil {
			return invalid("masters", "%q: %w", addr, err)
		}
		if slices.Contains(c.Masters[:i], addr) {
			return invalid("masters", "%q is given twice", addr)
		}
	}
	for _, addr := range c.Admin {
		if err := checkAddr(addr); err != nil {
			return invalid("admin", "%q: %w", addr, err)
		}
	}
	switch {
	case !validTenant(c.Tenant):
		return invalid("tenant", "%q: it must not begin with _ or hold control characters, nor be longer than 255 bytes", c.Tenant)
	case c.Conns < 0:
		return invalid("conns", "%d is negative", c.Conns)
	case c.DialTimeout < 0:
		return invalid("dial_timeout", "%v is negative", c.DialTimeout)
	}
	return nil
}

// invalid is an ErrConfig about a field.
func invalid(field, format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrConfig, fielderror.New([]string{field}, format, args...))
}

func checkAddr(addr string) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("it must be host:port, such as 127.0.0.1:50051: %w", err)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || host == "" {
		return fmt.Errorf("it must be host:port, such as 127.0.0.1:50051")
	}
	return nil
}

// validTenant is the master's own rule. The master logs a line for each key that is
// asked for an invalid tenant, so it is checked here.
func validTenant(id string) bool {
	if id[0] == '_' || len(id) > 255 {
		return false
	}
	for i := range len(id) {
		if id[i] < ' ' || id[i] == 0x7f {
			return false
		}
	}
	return true
}
