package config

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/lookup"
)

// Backend holds one field for each backend, of which one is in effect: the one
// that is named. A later source that names another one replaces the choice.
type Backend struct {
	Memory   Memory   `yaml:"memory"`
	Redis    Redis    `yaml:"redis"`
	Mooncake Mooncake `yaml:"mooncake"`

	chosen string
}

// Memory bounds the embedded index.
type Memory struct {
	MaxBytes   Size  `yaml:"max_bytes"`   // bytes
	MaxEntries int64 `yaml:"max_entries"` // distinct hashes; 0: as many as max_bytes allows
}

// Redis is a Redis or a Valkey: one server, or a cluster.
type Redis struct {
	URL      string   `yaml:"url"`       // redis://[user:password@]host[:port][/db]; required
	TTL      Duration `yaml:"ttl"`       // of a stored block; 0: for ever
	PoolSize int      `yaml:"pool_size"` // connections to each server
	Timeout  Duration `yaml:"timeout"`   // of a lookup
	Blocks   int64    `yaml:"blocks"`    // that the store has room for; 0: what it says
}

// Mooncake is a Mooncake store, which is only read.
type Mooncake struct {
	Masters    []string `yaml:"masters"` // host:port of their RPC; required
	Admin      []string `yaml:"admin"`   // host:port of their admin ports, to look at keys; may be empty
	Tenant     string   `yaml:"tenant"`
	Conns      int      `yaml:"conns"`       // connections to the leader
	AllowReset bool     `yaml:"allow_reset"` // a reset empties the store, for all engines
	Lease      Duration `yaml:"lease"`       // of a found block; 0: what the leader states
	Timeout    Duration `yaml:"timeout"`     // of a lookup
	Renew      Renew    `yaml:"renew"`       // of what lies before the start of lookups
	Remember   Remember `yaml:"remember"`    // for how long found blocks are not asked for again
	Groups     bool     `yaml:"groups"`      // engines put blocks in groups, which the master leases together
	Blocks     int64    `yaml:"blocks"`      // that the store has room for; 0: what it says
}

// Renew is for which engines blocks are renewed: auto, always or never.
type Renew string

// Lookup returns the service's word for r.
func (r Renew) Lookup() lookup.Renewal {
	return map[Renew]lookup.Renewal{"always": lookup.RenewAlways, "never": lookup.RenewNever}[r]
}

// Remember is for how long a found block is answered without a call: a time, or auto.
type Remember Duration

// RememberAuto follows from the lease that the store states.
const RememberAuto Remember = -1

// UnmarshalText reads a time or auto.
func (r *Remember) UnmarshalText(text []byte) error {
	if string(text) == "auto" {
		*r = RememberAuto
		return nil
	}
	if err := (*Duration)(r).UnmarshalText(text); err != nil {
		return fmt.Errorf("%w, or auto", err)
	}
	return nil
}

// MarshalText writes what String does.
func (r Remember) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// String returns auto or the time.
func (r Remember) String() string {
	if r == RememberAuto {
		return "auto"
	}
	return Duration(r).String()
}

// Lookup returns the service's word for r.
func (r Remember) Lookup() time.Duration {
	switch r {
	case RememberAuto:
		return 0
	case 0:
		return -1
	}
	return time.Duration(r)
}

// backendNames are the names of the fields of Backend.
var backendNames = []string{"memory", "redis", "mooncake"}

// BackendNames returns the names of the backends.
func BackendNames() []string { return slices.Clone(backendNames) }

// Name returns the name of the backend in effect.
func (b *Backend) Name() string { return b.chosen }

// MarshalYAML returns the backend in effect alone. A password is not shown.
func (b Backend) MarshalYAML() (any, error) {
	b.Redis.URL = HidePassword(b.Redis.URL)
	var section any = b.Memory
	switch b.chosen {
	case "redis":
		section = b.Redis
	case "mooncake":
		section = b.Mooncake
	}
	return yaml.MapSlice{{Key: b.chosen, Value: section}}, nil
}

// HidePassword returns a URL with *** for its password, and other text as it is.
func HidePassword(text string) string {
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok {
		return text
	}
	end := len(rest)
	// A password with one of these in it makes no URL, and is not shown either.
	if _, err := url.Parse(text); err == nil && strings.ContainsAny(rest, "/?#") {
		end = strings.IndexAny(rest, "/?#")
	}
	at := max(0, strings.LastIndexByte(rest[:end], '@'))
	user, password, _ := strings.Cut(rest[:at], ":")
	if password == "" {
		return text
	}
	return scheme + "://" + user + ":***" + rest[at:]
}

// choose records which backend a source names, if any. source returns true for its
// origins. Two backends are refused.
func (c *Config) choose(source func(at origin) bool) error {
	var named []string
	for _, path := range slices.Sorted(maps.Keys(c.origins)) {
		rest, ok := strings.CutPrefix(path, "backend.")
		name, _, _ := strings.Cut(rest, ".")
		at := c.origins[path]
		if !ok || !source(at) || slices.Contains(named, name) {
			continue
		}
		if named = append(named, name); len(named) > 1 {
			return &problem{at: at, path: "backend", text: fmt.Sprintf("both %s and %s; a process has one backend, remove the others", named[0], name)}
		}
		c.setBackend(name, at)
	}
	return nil
}

// setBackend chooses a backend, which at names.
func (c *Config) setBackend(name string, at origin) {
	c.Backend.chosen = name
	if path := join("backend", name); c.origins.find(path) == c.origins.find("backend") {
		c.origins[path] = at // for what is missing in it
	}
}

// checkBackend checks the section of the backend in effect.
func (c *Config) checkBackend() error {
	b := &c.Backend
	switch b.chosen {
	case "memory":
		if shares := c.MemoryShares(); shares > 1 && int64(b.Memory.MaxBytes)/shares < index.MinMaxBytes {
			return c.wrong("backend.memory.max_bytes", "%d bytes are %d for each of %d pools, the least is %d: raise it, or lower max_pools",
				b.Memory.MaxBytes, int64(b.Memory.MaxBytes)/shares, shares, index.MinMaxBytes)
		}
		return nil
	case "redis":
		if b.Redis.URL == "" {
			return c.wrong("backend.redis.url", "is missing; give the server's, such as redis://127.0.0.1:6379, here or in HITLINE_BACKEND_REDIS_URL")
		}
		return nil
	}
	if len(b.Mooncake.Masters) == 0 {
		return c.wrong("backend.mooncake.masters", "is missing; give the RPC addresses of the masters, such as [127.0.0.1:50051], here or with commas between them in HITLINE_BACKEND_MOONCAKE_MASTERS; or name Mooncake's own file by MOONCAKE_CONFIG_PATH")
	}
	if b.Mooncake.Tenant == "" {
		return c.wrong("backend.mooncake.tenant", "is empty; leave it out for default")
	}
	return nil
}

// checkBackendName refuses a name that is none of a backend.
func checkBackendName(name string) error {
	if !slices.Contains(backendNames, name) {
		return fmt.Errorf("unknown backend %q; use memory, redis or mooncake", name)
	}
	return nil
}

// InCluster reports whether the server is configured as one of a cluster.
func (r *Redis) InCluster() bool {
	scheme, _, _ := strings.Cut(r.URL, "://")
	return strings.HasSuffix(strings.ToLower(scheme), "-cluster")
}
