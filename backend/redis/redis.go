package redis

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/hitline/hitline/backend"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/fielderror"
)

// Layout is how blocks are laid out in the store.
type Layout string

// The layouts; see the package's text.
const (
	LayoutKeys Layout = "keys" // a string key for each block
	LayoutSet  Layout = "set"  // a set for each group and rank
)

// Config configures a Backend. Zero fields mean the defaults.
type Config struct {
	// URL is where the store is:
	//
	//	redis://[user:password@]host[:port][/db]     one server; port 6379 and database 0 if left out
	//	redis-cluster://[user:password@]host[:port][?addr=host:port&addr=…]
	//	unix://[user:password@]/path/of/socket[?db=N]
	//
	// with rediss and rediss-cluster for TLS, and valkey for redis anywhere. A password
	// without a user is written :password@, special characters percent-encoded. TLS
	// takes, behind the ?, ca=FILE (the certificates to trust in PEM; default: the
	// system's), cert=FILE&key=FILE (of this client), server_name=NAME and
	// skip_verify=true. addr names further nodes to begin with: the first that answers
	// tells the whole cluster.
	URL string
	// Cluster makes redis:// and rediss:// a cluster's URL.
	Cluster bool
	// KeyPrefix is how all keys of the pool begin, up to the model: see PoolPrefix.
	// Store and Evict refuse other keys, and Reset removes none.
	KeyPrefix string
	// Layout is how blocks are laid out. Default LayoutKeys.
	Layout Layout
	// TTL is how long a stored block stays, counted from its latest Store, in
	// milliseconds. Zero is for ever. LayoutKeys only.
	TTL time.Duration
	// PoolSize bounds the connections to each server. Default 40: a service's workers
	// and some to spare.
	PoolSize int
	// DialTimeout bounds the making of a connection. Default 1 s.
	DialTimeout time.Duration
	// IOTimeout bounds one wait for a server's bytes; an earlier deadline of the call
	// counts first. Give the longest time that a call may take. Default 10 s, that of
	// lookup.RemoteConfig.WriteTimeout.
	IOTimeout time.Duration
	// TLS is what rediss:// and rediss-cluster:// begin with; nil: Go's defaults.
	TLS *tls.Config
}

// ErrConfig is a configuration that cannot be.
var ErrConfig = errors.New("redis: bad configuration")

// String shows c without its URL, which may hold a password.
func (c Config) String() string {
	return fmt.Sprintf("redis{layout: %s, prefix: %q, ttl: %v}", c.Layout, c.KeyPrefix, c.TTL)
}

// GoString is String.
func (c Config) GoString() string { return c.String() }

// LogValue is String.
func (c Config) LogValue() slog.Value { return slog.StringValue(c.String()) }

func (c Config) withDefaults() Config {
	if c.Layout == "" {
		c.Layout = LayoutKeys
	}
	if c.PoolSize == 0 {
		c.PoolSize = 40
	}
	if c.DialTimeout == 0 {
		c.DialTimeout = time.Second
	}
	if c.IOTimeout == 0 {
		c.IOTimeout = 10 * time.Second
	}
	return c
}

// endpoint checks c and reads its URL.
func (c Config) endpoint() (*endpoint, error) {
	e, err := parseURL(c.URL, c.TLS)
	if err != nil {
		return nil, invalid([]string{"url"}, "the URL %w", err)
	}
	e.cluster = e.cluster || c.Cluster
	switch {
	case e.cluster && e.network == "unix":
		return nil, invalid([]string{"cluster", "url"}, "a cluster is not reached by a socket's path")
	case e.cluster && e.db != 0:
		return nil, invalid([]string{"url"}, "a cluster has no database but 0")
	case !e.cluster && len(e.addrs) > 1:
		return nil, invalid([]string{"url"}, "addr is for a cluster: redis-cluster://")
	case c.Layout != LayoutKeys && c.Layout != LayoutSet:
		return nil, invalid([]string{"layout"}, "no layout %q: keys or set", c.Layout)
	case c.KeyPrefix == "":
		return nil, fmt.Errorf("%w: no KeyPrefix: the pool's keys could not be told from others", ErrConfig)
	case c.TTL < 0 || c.TTL%time.Millisecond != 0:
		return nil, invalid([]string{"ttl"}, "a time to live of %v: whole milliseconds, or 0 for ever", c.TTL)
	case c.TTL > 0 && c.Layout == LayoutSet:
		return nil, invalid([]string{"layout", "ttl"}, "a set's members have no time to live: use layout keys")
	case c.PoolSize < 0:
		return nil, invalid([]string{"pool_size"}, "%d is negative", c.PoolSize)
	case c.DialTimeout < 0 || c.IOTimeout < 0:
		return nil, invalid([]string{"timeout"}, "a timeout is negative")
	}
	return e, nil
}

// invalid is an ErrConfig about fields.
func invalid(fields []string, format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrConfig, fielderror.New(fields, format, args...))
}

// PoolPrefix returns the Config.KeyPrefix of the pool of c.
func PoolPrefix(c *coordinator.Coordinator) string {
	key := c.KeyPrefix(0, coordinator.Rank{})
	return key[:strings.LastIndex(key, rankPart)]
}

// rankPart is what follows the prefix in each key of a pool.
const rankPart = "@tp_rank:"

// DiscardDriverLog silences what the driver writes to standard error, for the whole
// process. All of it is in the errors of this package too.
func DiscardDriverLog() { discardDriverLog() }

var discardDriverLog = sync.OnceFunc(func() { goredis.SetLogger(discard{}) })

type discard struct{}

func (discard) Printf(context.Context, string, ...any) {}

// Backend is a pool in a Redis. Make it with New.
type Backend struct {
	cfg    Config
	at     *endpoint
	dialer dialer
	client goredis.UniversalClient

	mu     sync.Mutex // orders the beginning of calls and Close
	closed bool
	calls  sync.WaitGroup
}

var _ backend.Backend = (*Backend)(nil)

// New checks cfg and returns its backend. It connects to nothing yet. Errors wrap
// ErrConfig.
func New(cfg Config) (*Backend, error) {
	cfg = cfg.withDefaults()
	at, err := cfg.endpoint()
	if err != nil {
		return nil, err
	}
	b := &Backend{cfg: cfg, at: at, dialer: dialer{tls: at.tls}}
	// Every command of ours may be sent twice, so what a lost connection spoils is
	// tried again at once. RESP 2 has no messages that nobody asked for.
	const retries, pause, longest = 2, time.Millisecond, 16 * time.Millisecond
	// A type of endpoint that is given is not found out by asking the DNS here and now.
	quiet := &maintnotifications.Config{Mode: maintnotifications.ModeDisabled, EndpointType: maintnotifications.EndpointTypeNone}
	if at.cluster {
		b.client = goredis.NewClusterClient(&goredis.ClusterOptions{
			NewClient: b.guarded,
			Addrs:     at.addrs, Username: at.user, Password: at.password, Protocol: 2,
			Dialer: b.dialer.dial, DialTimeout: cfg.DialTimeout, DialerRetries: 1,
			ReadTimeout: cfg.IOTimeout, WriteTimeout: cfg.IOTimeout, ContextTimeoutEnabled: true,
			MaxRedirects: 1 + retries, MinRetryBackoff: pause, MaxRetryBackoff: longest,
			PoolSize: cfg.PoolSize, PoolTimeout: cfg.IOTimeout, MaxActiveConns: cfg.PoolSize,
			OnConnect: onConnect, DisableIdentity: true, MaintNotificationsConfig: quiet,
		})
		return b, nil
	}
	b.client = b.guarded(&goredis.Options{
		Network: at.network, Addr: at.addrs[0], Username: at.user, Password: at.password, DB: at.db, Protocol: 2,
		Dialer: b.dialer.dial, DialTimeout: cfg.DialTimeout, DialerRetries: 1,
		ReadTimeout: cfg.IOTimeout, WriteTimeout: cfg.IOTimeout, ContextTimeoutEnabled: true,
		MaxRetries: retries, MinRetryBackoff: pause, MaxRetryBackoff: longest,
		PoolSize: cfg.PoolSize, PoolTimeout: cfg.IOTimeout, MaxActiveConns: cfg.PoolSize,
		OnConnect: onConnect, DisableIdentity: true, MaintNotificationsConfig: quiet,
	})
	return b, nil
}

// guarded returns a client of one server.
func (b *Backend) guarded(o *goredis.Options) *goredis.Client {
	client := goredis.NewClient(o)
	client.AddHook(guard{&b.dialer})
	return client
}

// onConnect asks a new connection something small: to a large command of a client
// that has not given its password, a server answers by cutting it off. Any other
// refusal is an answer too; without one the connection must not be used, for what comes
// late would be taken for the answer to the next command.
func onConnect(ctx context.Context, conn *goredis.Conn) error {
	err := conn.Ping(ctx).Err()
	if _, answered := errors.AsType[goredis.Error](err); answered && !goredis.HasErrorPrefix(err, "NOAUTH") {
		return nil
	}
	return err
}

// Name is "redis".
func (b *Backend) Name() string { return "redis" }

// String shows where b is, for a log: no user and no password.
func (b *Backend) String() string { return "redis at " + b.at.String() }

// asked is the outcome of a call.
type asked struct {
	answers []int
	err     error
}

// do runs call, and returns soon after ctx ends: the driver itself sees a deadline
// but not a cancellation, and not while it dials. A call that is left behind ends by
// its timeouts, so it must use nothing that the caller gets back; its errors are
// explained here.
func (b *Backend) do(ctx context.Context, writes bool, call func(ctx context.Context) ([]int, error)) ([]int, error) {
	if err := ctx.Err(); err != nil {
		return nil, b.explain(ctx, err, writes)
	}
	if !b.begin() {
		return nil, b.explain(ctx, goredis.ErrClosed, writes)
	}
	done := make(chan asked, 1)
	go func() {
		defer b.calls.Done()
		answers, err := call(ctx)
		done <- asked{answers, err}
	}()
	select {
	case a := <-done:
		if a.err != nil {
			return nil, b.explain(ctx, a.err, writes)
		}
		return a.answers, nil
	case <-ctx.Done():
		return nil, b.explain(ctx, ctx.Err(), writes)
	}
}

// Exists tells which keys are present: one answer a key, all or an error.
func (b *Backend) Exists(ctx context.Context, keys []string) ([]int, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	keys = slices.Clone(keys) // a call that is left behind keeps them
	return b.do(ctx, false, func(ctx context.Context) ([]int, error) {
		switch {
		case b.cfg.Layout == LayoutSet:
			return b.askSets(ctx, keys)
		case b.at.cluster:
			return b.askEach(ctx, keys)
		}
		return b.askCounts(ctx, keys)
	})
}

// Store adds keys.
func (b *Backend) Store(ctx context.Context, keys []string) error {
	return b.change(ctx, keys, b.storeKeys, b.storeMembers)
}

// Evict removes keys.
func (b *Backend) Evict(ctx context.Context, keys []string) error {
	return b.change(ctx, keys, b.evictKeys, b.evictMembers)
}

// change runs one of two changes, by the layout.
func (b *Backend) change(ctx context.Context, keys []string, ofKeys, ofSets func(ctx context.Context, keys []string) error) error {
	own := make([]string, len(keys))
	for i, key := range keys {
		if !b.ours(key, true) {
			return fmt.Errorf("%w: %q is no key of the pool %q", backend.ErrReply, key, b.cfg.KeyPrefix)
		}
		own[i] = strings.Clone(key)
	}
	_, err := b.do(ctx, true, func(ctx context.Context) ([]int, error) {
		if b.cfg.Layout == LayoutSet {
			return nil, ofSets(ctx, own)
		}
		return nil, ofKeys(ctx, own)
	})
	return err
}

// Close ends b and waits for its calls, which fail.
func (b *Backend) Close() error {
	b.mu.Lock()
	first := !b.closed
	b.closed = true
	b.mu.Unlock()
	var err error
	if first {
		err = b.client.Close()
	}
	b.calls.Wait()
	return err
}

// begin counts a call, unless b is closed.
func (b *Backend) begin() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.calls.Add(1)
	}
	return !b.closed
}
