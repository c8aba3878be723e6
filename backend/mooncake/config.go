package mooncake

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hitline/hitline/internal/fielderror"
)

// Defaults of Config.
const (
	DefaultTenant      = "default"
	DefaultConns       = 8
	DefaultDialTimeout = time.Second
	DefaultLease       = 5 * time.Second // of masters up to v0.3.11; later ones have 10 s
)

// Config configures a Client. A zero field means its default.
type Config struct {
	// Masters are the addresses host:port of the masters' RPC ports, in any order. A name stands
	// for all addresses that it resolves to, asked again whenever a leader is looked for. The one that
	// answers is the leader. At least one is required.
	Masters []string
	// Admin are the addresses host:port of the masters' admin ports, in any order. Only Keys
	// needs them. None by default.
	Admin []string
	// Tenant is the owner of the keys: the engines' tenant_id. A master before v0.3.12, or
	// without tenants, ignores it. DefaultTenant by default.
	Tenant string
	// Conns bounds the connections, and so the concurrent requests to the master.
	// DefaultConns by default.
	Conns int
	// AllowReset allows Reset, which removes every key of the tenant under all engines.
	AllowReset bool
	// Lease is the masters' default_kv_lease_ttl. By default it is asked for when a block has been
	// found, and DefaultLease before.
	Lease time.Duration
	// DialTimeout bounds connecting and the master's first answer. The deadline of the call
	// that dials bounds them too. DefaultDialTimeout by default.
	DialTimeout time.Duration
	// Logger gets a line when a leader is found, and one when there is no leader any longer.
	// By default nothing is logged.
	Logger *slog.Logger

	lookupHost func(ctx context.Context, host string) (addrs []string, err error) // net.Resolver.LookupHost, but in tests
}

// withDefaults returns c with its defaults, validated.
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
	if c.lookupHost == nil {
		c.lookupHost = net.DefaultResolver.LookupHost
	}
	return c, c.validate()
}

func (c *Config) validate() error {
	if len(c.Masters) == 0 {
		return invalid("masters", "none is given")
	}
	for i, addr := range c.Masters {
		switch scheme, _, found := strings.Cut(addr, "://"); { // the rest may have a password
		case found && slices.Contains([]string{"tcp", "http", "https"}, scheme):
			return invalid("masters", "%s://…: leave out %s://: it must be host:port, such as 127.0.0.1:50051", scheme, scheme)
		case found:
			return invalid("masters", "%s://…: hitline does not find masters by etcd, Kubernetes or Redis: "+
				"name the RPC addresses host:port of all masters, or one name that resolves to all of them", scheme)
		}
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
	case c.Lease < 0:
		return invalid("lease", "%v is negative", c.Lease)
	case c.DialTimeout < 0:
		return invalid("dial_timeout", "%v is negative", c.DialTimeout)
	}
	return nil
}

// invalid is an api.ErrConfig about a field.
func invalid(field, format string, args ...any) error {
	return fmt.Errorf("mooncake: %w: %w", fielderror.ErrConfig, fielderror.New([]string{field}, format, args...))
}

func checkAddr(addr string) error {
	if strings.ContainsAny(addr, ";, ") {
		return errors.New("give each address as an item of its own, such as [10.0.0.5:50051, 10.0.0.6:50051]")
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("it must be host:port, such as 127.0.0.1:50051: %w", err)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || host == "" {
		return fmt.Errorf("it must be host:port, such as 127.0.0.1:50051")
	}
	return nil
}

// validTenant applies the master's own rule. It is checked here because the master would log
// a line for each key of a request with an invalid tenant.
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
