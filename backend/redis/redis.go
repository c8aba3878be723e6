package redis

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/hitline/hitline/backend"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/fielderror"
	"github.com/hitline/hitline/internal/requesterror"
)

// Config configures a Backend. A zero field means its default.
type Config struct {
	// URL is the address of the store:
	//
	//	redis://[user:password@]host[:port][/db]     one server; port 6379 and database 0 if left out
	//	redis-cluster://[user:password@]host[:port][?addr=host:port&addr=…]
	//	unix://[user:password@]/path/of/socket[?db=N]
	//
	// rediss and rediss-cluster stand for TLS; valkey may replace redis in each scheme. A
	// password without a user is written :password@. Special characters of a password are
	// percent-encoded. Each addr is one more node of the cluster to start from: the first
	// that answers names all nodes.
	//
	// With TLS the query may have ca=FILE (PEM certificates to trust, by default those of
	// the system), cert=FILE&key=FILE (of this client), server_name=NAME and
	// skip_verify=true.
	URL string
	// KeyPrefix is the prefix of all keys of the pool: PoolPrefix returns it. Store and Evict
	// refuse other keys, and Reset removes no others. Required.
	KeyPrefix string
	// TTL is the time to live of a block after its latest Store, in whole milliseconds. Zero
	// means no limit.
	TTL time.Duration
	// PoolSize bounds the connections to each server. Default 40, more than the default
	// workers of a service.
	PoolSize int
	// DialTimeout bounds one attempt to connect. Default 1 s.
	DialTimeout time.Duration
	// IOTimeout bounds one read or write of a connection. An earlier deadline of the call
	// counts first, so set it to the longest timeout of a call. Default 10 s, as
	// lookup.RemoteConfig.WriteTimeout.
	IOTimeout time.Duration
}

// String describes c without its URL, which may have a password.
func (c Config) String() string {
	return fmt.Sprintf("redis{prefix: %q, ttl: %v}", c.KeyPrefix, c.TTL)
}

// GoString is String, so that %#v prints no password.
func (c Config) GoString() string { return c.String() }

// LogValue is String, so that slog logs no password.
func (c Config) LogValue() slog.Value { return slog.StringValue(c.String()) }

func (c Config) withDefaults() Config {
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

// endpoint validates c and parses its URL.
func (c Config) endpoint() (*endpoint, error) {
	e, err := parseURL(c.URL)
	if err != nil {
		return nil, invalid([]string{"url"}, "the URL %w", err)
	}
	switch {
	case e.cluster && e.db != 0:
		return nil, invalid([]string{"url"}, "a cluster has no database but 0")
	case !e.cluster && len(e.addrs) > 1:
		return nil, invalid([]string{"url"}, "addr is for a cluster: redis-cluster://")
	case c.KeyPrefix == "":
		return nil, fmt.Errorf("redis: %w: no KeyPrefix: the pool's keys could not be told from others", fielderror.ErrConfig)
	case c.TTL < 0 || c.TTL%time.Millisecond != 0:
		return nil, invalid([]string{"ttl"}, "a time to live of %v: whole milliseconds, or 0 for ever", c.TTL)
	case c.PoolSize < 0:
		return nil, invalid([]string{"pool_size"}, "%d is negative", c.PoolSize)
	case c.DialTimeout < 0 || c.IOTimeout < 0:
		return nil, invalid([]string{"timeout"}, "a timeout is negative")
	}
	return e, nil
}

// invalid is an api.ErrConfig about fields.
func invalid(fields []string, format string, args ...any) error {
	return fmt.Errorf("redis: %w: %w", fielderror.ErrConfig, fielderror.New(fields, format, args...))
}

// CheckLayout refuses the layout of keys of a pool that a Backend cannot tell from other keys. The error names the field.
func CheckLayout(pool coordinator.Pool) error {
	if pool.Layout == coordinator.LayoutLMDeploy {
		return fielderror.New([]string{"layout"}, "is %s, whose engines store in Mooncake alone; leave it out, or use backend.mooncake", pool.Layout)
	}
	return nil
}

// PoolPrefix returns the Config.KeyPrefix of the pool of c, whose layout CheckLayout accepts: its keys up to the model name.
func PoolPrefix(c *coordinator.Coordinator) string {
	key := c.KeyPrefix(0, coordinator.Rank{})
	return key[:strings.LastIndex(key, rankPart)]
}

// rankPart follows the prefix in each key of a pool.
const rankPart = "@tp_rank:"

// DiscardDriverLog silences the driver's log to standard error, for the whole process. This
// package's errors say the same.
func DiscardDriverLog() { discardDriverLog() }

var discardDriverLog = sync.OnceFunc(func() { goredis.SetLogger(discardLogger{}) })

type discardLogger struct{}

func (discardLogger) Printf(context.Context, string, ...any) {}

// Backend is a pool in a Redis or Valkey. Create it with New. It is safe for concurrent
// use.
type Backend struct {
	backend.Plain
	cfg Config
	*connections
}

// connections are those of the Backends of several pools.
type connections struct {
	endpoint  *endpoint
	processes processes
	dialer    dialer
	client    goredis.UniversalClient
	closing   chan struct{} // closed by Close
	watching  sync.WaitGroup

	mu     sync.Mutex // calls.Add does not run after closed is set
	closed bool       // guarded by mu
	calls  sync.WaitGroup
}

var _ backend.Backend = (*Backend)(nil)

// WithPrefix returns the backend of another pool, whose PoolPrefix is prefix, over the same
// connections. Close of either closes both.
func (b *Backend) WithPrefix(prefix string) *Backend {
	other := &Backend{cfg: b.cfg, connections: b.connections}
	other.cfg.KeyPrefix = prefix
	return other
}

// New returns a backend of cfg. It does not connect: the first call does. Close ends what it starts. Its errors wrap
// api.ErrConfig.
func New(cfg Config) (*Backend, error) {
	cfg = cfg.withDefaults()
	at, err := cfg.endpoint()
	if err != nil {
		return nil, err
	}
	b := &Backend{cfg: cfg, connections: &connections{endpoint: at, closing: make(chan struct{})}}
	b.dialer.tls, b.dialer.processes = at.tls, &b.processes
	b.newClient()
	b.watching.Go(b.watch)
	return b, nil
}

// newClient creates the driver's client.
func (b *Backend) newClient() {
	cfg, at, host := &b.cfg, b.endpoint, b.endpoint.host()
	b.dialer.host.Store(&host)
	// All commands are idempotent, so the driver may retry them when a connection is lost.
	// Protocol 2 is RESP 2, which has no push messages.
	const retries, minBackoff, maxBackoff = 2, time.Millisecond, 16 * time.Millisecond
	// Without an EndpointType the driver would resolve the host here.
	maintenance := &maintnotifications.Config{Mode: maintnotifications.ModeDisabled, EndpointType: maintnotifications.EndpointTypeNone}
	if at.cluster {
		b.client = goredis.NewClusterClient(&goredis.ClusterOptions{
			Addrs: at.addrs, Username: at.user, Password: at.password, Protocol: 2, NewClient: b.dialer.newNode,
			Dialer: b.dialer.dial, DialTimeout: cfg.DialTimeout, DialerRetries: 1,
			ReadTimeout: cfg.IOTimeout, WriteTimeout: cfg.IOTimeout, ContextTimeoutEnabled: true,
			MaxRedirects: 1 + retries, MinRetryBackoff: minBackoff, MaxRetryBackoff: maxBackoff,
			PoolSize: cfg.PoolSize, PoolTimeout: cfg.IOTimeout, MaxActiveConns: cfg.PoolSize,
			DisableIdentity: true, MaintNotificationsConfig: maintenance,
		})
		return
	}
	b.client = goredis.NewClient(&goredis.Options{
		Network: at.network, Addr: at.addrs[0], Username: at.user, Password: at.password, DB: at.db, Protocol: 2,
		Dialer: b.dialer.dial, DialTimeout: cfg.DialTimeout, DialerRetries: 1,
		ReadTimeout: cfg.IOTimeout, WriteTimeout: cfg.IOTimeout, ContextTimeoutEnabled: true,
		MaxRetries: retries, MinRetryBackoff: minBackoff, MaxRetryBackoff: maxBackoff,
		PoolSize: cfg.PoolSize, PoolTimeout: cfg.IOTimeout, MaxActiveConns: cfg.PoolSize,
		OnConnect: b.dialer.onConnect(at.addrs[0]), DisableIdentity: true, MaintNotificationsConfig: maintenance,
	})
}

// Name returns "redis".
func (b *Backend) Name() string { return "redis" }

// String returns "redis at " and the addresses, without user and password.
func (b *Backend) String() string { return "redis at " + b.endpoint.String() }

// result is what a call returns.
type result struct {
	answers []int
	err     error
}

// do runs call on a goroutine of its own and explains its error. It returns when ctx ends,
// even if call has not: the driver observes a deadline, but no cancellation, and neither
// while it dials. An abandoned call ends by its timeouts. It must not use memory that the
// caller may reuse after do. A call that writes is waited for: until it ends it may take effect.
func (b *Backend) do(ctx context.Context, writes bool, call func(ctx context.Context) ([]int, error)) ([]int, error) {
	began := time.Now()
	if err := ctx.Err(); err != nil {
		return nil, b.explain(ctx, began, err, writes)
	}
	if !b.beginCall() {
		return nil, b.explain(ctx, began, goredis.ErrClosed, writes)
	}
	done := make(chan result, 1)
	go func() {
		defer b.calls.Done()
		var r result
		defer func() { done <- r }()
		defer requesterror.Recover(&r.err)
		r.answers, r.err = call(ctx)
	}()
	given := ctx.Done() // up
	if writes {
		given = nil
	}
	select {
	case r := <-done:
		if r.err != nil {
			return nil, b.explain(ctx, began, r.err, writes)
		}
		b.processes.failure.Store(nil)
		return r.answers, nil
	case <-given:
		return nil, b.explain(ctx, began, ctx.Err(), writes)
	}
}

// Exists returns one answer for each key: 1 if it is present, 0 if it is absent. If any part
// fails, it returns only an error.
func (b *Backend) Exists(ctx context.Context, asked backend.Keys, _ bool) ([]int, error) {
	keys := asked.Strings()
	if len(keys) == 0 {
		return nil, nil
	}
	b.processes.asked.Store(true)
	return b.do(ctx, false, func(ctx context.Context) ([]int, error) {
		if b.endpoint.cluster {
			return b.existsEach(ctx, keys)
		}
		return b.existsByCount(ctx, keys)
	})
}

// Store adds keys. They must belong to the pool. A store that fails may have added some.
func (b *Backend) Store(ctx context.Context, keys []string) error {
	return b.change(ctx, keys, b.storeKeys)
}

// Evict removes keys. They must belong to the pool.
func (b *Backend) Evict(ctx context.Context, keys []string) error {
	return b.change(ctx, keys, b.evictKeys)
}

// change checks keys and runs a change of them.
func (b *Backend) change(ctx context.Context, keys []string, change func(ctx context.Context, keys []string) error) error {
	copies := make([]string, len(keys))
	for i, key := range keys {
		if !b.isPoolKey(key) {
			return fmt.Errorf("%w: %q is no key of the pool %q", backend.ErrReply, key, b.cfg.KeyPrefix)
		}
		copies[i] = strings.Clone(key)
	}
	return b.doChange(ctx, func(ctx context.Context) error { return change(ctx, copies) })
}

// doChange is do for a change. If it fails when the server has confirmed some of its commands, the
// error wraps backend.ErrPartlyDone.
func (b *Backend) doChange(ctx context.Context, change func(ctx context.Context) error) error {
	confirmed := new(atomic.Bool)
	_, err := b.do(context.WithValue(ctx, confirmedKey{}, confirmed), true, func(ctx context.Context) ([]int, error) {
		return nil, change(ctx)
	})
	if err != nil && confirmed.Load() {
		return fmt.Errorf("%w: %w", backend.ErrPartlyDone, err)
	}
	return err
}

// confirmedKey is the key of the *atomic.Bool that exec sets when the server has confirmed a command.
type confirmedKey struct{}

// Close closes the connections and waits for all calls, which fail. Later calls fail too. It
// may be called twice.
func (b *Backend) Close() error {
	b.mu.Lock()
	first := !b.closed
	b.closed = true
	b.mu.Unlock()
	var err error
	if first {
		close(b.closing)
		err = b.client.Close()
	}
	b.calls.Wait()
	b.watching.Wait()
	return err
}

// beginCall counts a call in b.calls. It returns false if b is closed.
func (b *Backend) beginCall() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.calls.Add(1)
	}
	return !b.closed
}
