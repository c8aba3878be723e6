package lookup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/hitline/hitline/backend"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/internal/monotime"
	"github.com/hitline/hitline/netproto"
)

// RemoteConfig says how a service deals with a backend that may be slow or fail.
// Zero fields mean the defaults.
type RemoteConfig struct {
	// Strategy is how lookups ask. Default Gallop; explain always asks all.
	Strategy Strategy
	// Timeout bounds a lookup with all its rounds, from its last byte to its answer. Default 100 ms: a
	// scheduler loses less by computing a prompt again than by waiting longer.
	Timeout time.Duration
	// WriteTimeout bounds a store, an evict or a reset. Default 10 s: nobody's
	// critical path waits for them, and a reset walks the whole pool. A change that
	// exceeds it may still take effect later; other changes wait until its call has
	// returned.
	WriteTimeout time.Duration
	// Workers is how many lookups ask the backend at a time, and WriteWorkers how
	// many of the other requests, so that slow resets never keep lookups waiting.
	// Default 32 and 4. Callers of Service's own methods bring their goroutine.
	Workers, WriteWorkers int
	// Queue is how many requests may wait for a worker. Past it a lookup answers 0,
	// and anything else is refused. Default 1,024.
	Queue int
	// MaxBytes bounds the hashes of all requests that arrive, wait or are being
	// asked; past it as for Queue. Default 256 MiB.
	MaxBytes int64
	// MaxKeyBytes bounds the memory of the keys that lookups and explains ask at a
	// time, with their answers and once more with their text, which a backend sends. A
	// request waits for memory until its time is up, one that takes up to a 32nd of it
	// in a quarter that larger ones do not use. One that takes more than half by itself
	// is answered 0, an explain refused. Default 1 GiB: two million keys of 100 bytes
	// for one, which is a prompt of 4 million tokens on 8 ranks in blocks of 16. Stores
	// and evicts are made in calls of 16,384 keys, whatever they bring.
	MaxKeyBytes int64
	// Watch, if it is set, is told of each lookup that the backend was asked for, on
	// the goroutine that asked: it must return at once.
	Watch func(LookupEvent)
	// BreakerFailures in a row open the circuit breaker: lookups then answer 0
	// without asking, but for one that tries the backend again after BreakerPause.
	// Default 5 and 1 s.
	BreakerFailures int
	BreakerPause    time.Duration
}

// LookupEvent is a lookup over a backend, and its result.
type LookupEvent struct {
	NumTokens int64           // aligned
	NumHashes int             // that came with it
	Hashes    netproto.Hashes // those of them that can change the answer; borrowed until Watch returns
	Hit       api.Hit         // 0 also if the backend failed
}

// DefaultWriteTimeout is the default of RemoteConfig.WriteTimeout.
const DefaultWriteTimeout = 10 * time.Second

// withDefaults fills in what is zero.
func (c RemoteConfig) withDefaults() RemoteConfig {
	for _, f := range []struct {
		have *int
		def  int
	}{{&c.Workers, 32}, {&c.WriteWorkers, 4}, {&c.Queue, 1024}, {&c.BreakerFailures, 5}} {
		if *f.have <= 0 {
			*f.have = f.def
		}
	}
	for _, f := range []struct {
		have *time.Duration
		def  time.Duration
	}{{&c.Timeout, 100 * time.Millisecond}, {&c.WriteTimeout, DefaultWriteTimeout}, {&c.BreakerPause, time.Second}} {
		if *f.have <= 0 {
			*f.have = f.def
		}
	}
	if c.MaxBytes <= 0 {
		c.MaxBytes = 256 << 20
	}
	if c.MaxKeyBytes <= 0 {
		c.MaxKeyBytes = 1 << 30
	}
	return c
}

// Remote is a service's way to its backend: every call passes the circuit breaker
// and is counted. What takes a context waits, so it must not be used on an event loop.
// Safe for concurrent use.
type Remote struct {
	service   *Service
	store     backend.Backend
	cfg       RemoteConfig
	breaker   *gobreaker.CircuitBreaker[[]int]
	log       breakerLog
	coalescer coalescer
	reads     *backendCalls
	changes   *backendCalls
	cpu       chan struct{} // a token for each lookup at work on its keys and answers
	keys      *keyMemory    // for keys being asked

	bytes                      atomic.Int64 // of hashes held, see reserve
	lastSuccess                atomic.Int64 // when the backend last answered or began to be asked, by monotonic; 0 before
	failed, timeouts, rejected atomic.Int64
	stored, evicted            atomic.Int64
}

func newRemote(service *Service, store backend.Backend, cfg RemoteConfig, logger *slog.Logger) *Remote {
	r := &Remote{service: service, store: store, cfg: cfg.withDefaults(), cpu: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2))}
	r.reads, r.changes = newBackendCalls(max(maxAbandonedReads, 2*r.cfg.Workers)), newBackendCalls(maxAbandonedChanges)
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	r.keys = newKeyMemory(r.cfg.MaxKeyBytes)
	r.log = breakerLog{logger: logger, backend: store.Name()}
	r.breaker = gobreaker.NewCircuitBreaker[[]int](gobreaker.Settings{
		Timeout:     r.cfg.BreakerPause,
		ReadyToTrip: func(c gobreaker.Counts) bool { return int64(c.ConsecutiveFailures) >= int64(r.cfg.BreakerFailures) },
		IsExcluded: func(err error) bool {
			return errors.Is(err, context.Canceled) || errors.Is(err, errLittleTime) || errors.Is(err, errAbandoned)
		}, // our own doing
		IsSuccessful:  healthy,
		OnStateChange: func(_ string, from, to gobreaker.State) { r.log.changed(from, to) },
	})
	return r
}

// healthy tells whether a backend that returns err is well.
func healthy(err error) bool { return err == nil || errors.Is(err, backend.ErrReadOnly) }

// errLittleTime says that a call of a backend that answers others was late which had no
// fair part of the request's time left: the request had spent it in the queue, or on
// rounds before.
var errLittleTime = errors.New("lookup: little time was left")

// littleTime tells whether less than half of a request's time is left.
func littleTime(ctx context.Context, timeout time.Duration) bool {
	deadline, ok := ctx.Deadline()
	return ok && time.Until(deadline) < timeout/2
}

// answers tells whether the backend has answered lately. One that hangs gets nothing but
// calls with little time once the queue is long: each takes what it has left, and so does
// the next.
func (r *Remote) answers() bool {
	return monotime.Now()-r.lastSuccess.Load() < int64(max(r.cfg.BreakerPause, r.cfg.Timeout))
}

// call makes one call of the backend, unless the breaker or the end of ctx
// forbids, and counts how it failed. timeout is what the whole request has: of a
// burst that is more than the backend serves in that time, those that come out of
// the queue last are cut off together, and that must not open the breaker.
// execute is the breaker's, or afterwards.
func (r *Remote) call(ctx context.Context, timeout time.Duration, execute execution, do func() ([]int, error)) ([]int, error) {
	if err := ctx.Err(); err != nil { // spent in the queue; the backend is not to blame
		return nil, r.countLate(err)
	}
	little := littleTime(ctx, timeout)
	r.lastSuccess.CompareAndSwap(0, monotime.Now())
	answers, err := execute(func() ([]int, error) {
		answers, err := do()
		switch {
		case err == nil:
			r.lastSuccess.Store(monotime.Now())
		case errors.Is(ctx.Err(), context.Canceled) && !errors.Is(err, context.Canceled):
			err = fmt.Errorf("%w: %w", context.Canceled, err) // whatever it says, it was our doing
		case little && errors.Is(ended(ctx), context.DeadlineExceeded) && r.answers():
			err = fmt.Errorf("%w: %w", errLittleTime, err)
		}
		if !healthy(err) {
			r.log.noteError(err)
		}
		return answers, err
	})
	r.log.tell()
	switch {
	case healthy(err) || errors.Is(err, context.Canceled):
	case errors.Is(err, gobreaker.ErrOpenState) || errors.Is(err, gobreaker.ErrTooManyRequests):
		r.rejected.Add(1)
		err = fmt.Errorf("%w: %s has failed and is tried again soon", backend.ErrUnavailable, r.store.Name())
	case errors.Is(err, context.DeadlineExceeded) || ended(ctx) != nil:
		r.timeouts.Add(1)
	default:
		r.failed.Add(1)
	}
	return answers, err
}

// countLate counts a request whose time was up before the backend could be asked, and
// returns why it was.
func (r *Remote) countLate(why error) error {
	if errors.Is(why, context.DeadlineExceeded) {
		r.timeouts.Add(1)
	}
	return why
}

// execution runs a call under the breaker.
type execution = func(do func() ([]int, error)) ([]int, error)

// afterwards runs a call and then tells the breaker how it went. While the breaker is
// half open it lets one call through at a time: were that a reset, which may take a
// hundred times as long as a lookup, all lookups would be kept out meanwhile.
func (r *Remote) afterwards(do func() ([]int, error)) ([]int, error) {
	answers, err := do()
	if r.breaker.State() == gobreaker.StateHalfOpen {
		_, _ = r.breaker.Execute(func() ([]int, error) { return nil, err })
	}
	return answers, err
}

// ended returns the error of a context that has ended, or that is about to: a socket
// mostly sees a deadline before it does.
func ended(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	return nil
}

// Down tells whether the breaker would refuse every call.
func (r *Remote) Down() bool { return r.breaker.State() == gobreaker.StateOpen }

// exists asks for keys, whose memory is held until the backend has returned.
func (r *Remote) exists(ctx context.Context, keys []string, memory *keyBytes) ([]int, error) {
	return r.call(ctx, r.cfg.Timeout, r.breaker.Execute, func() ([]int, error) {
		return r.reads.run(ctx, memory, func() ([]int, error) { return r.store.Exists(ctx, keys) })
	})
}

// changeKeys makes one call of the backend that has no answers.
func (r *Remote) changeKeys(ctx context.Context, keys []string, do func(ctx context.Context, keys []string) error) error {
	_, err := r.changes.run(ctx, nil, func() ([]int, error) { return nil, do(ctx, keys) })
	return err
}

// write makes changes under the breaker. what says what for.
func (r *Remote) write(ctx context.Context, what string, do func(ctx context.Context) error) error {
	execute := r.breaker.Execute
	if r.breaker.State() == gobreaker.StateHalfOpen {
		execute = r.afterwards
	}
	_, err := r.call(ctx, r.cfg.WriteTimeout, execute, func() ([]int, error) { return nil, do(ctx) })
	r.coalescer.invalidate() // also if it failed: it may have done a part
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// Reserve accounts for n more bytes of hashes held, and false says that there is
// no room for them. Free takes them back.
func (r *Remote) Reserve(n int) bool {
	if r.bytes.Add(int64(n)) <= r.cfg.MaxBytes {
		return true
	}
	r.bytes.Add(int64(-n))
	return false
}

// Free is the end of what was reserved.
func (r *Remote) Free(n int) { r.bytes.Add(int64(-n)) }

// Reserved is how many bytes are reserved.
func (r *Remote) Reserved() int64 { return r.bytes.Load() }

// acquireCPU takes a CPU token: the keys of a long prompt are a millisecond of work,
// and as many workers at it as there are processors would keep the event loops waiting
// for the scheduler of goroutines, which knows no priorities. When ctx ends it returns
// without a token, as nothing is left to do but to take note of that.
func (r *Remote) acquireCPU(ctx context.Context) (release func()) {
	select {
	case r.cpu <- struct{}{}:
		return func() { <-r.cpu }
	case <-ctx.Done():
		return func() {}
	}
}
