package events

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/hitline/hitline/events/internal/zmtp"
)

// Config configures a Follower. Endpoints are tcp://host:port or ipc://path, as ZeroMQ writes
// them.
type Config struct {
	Name    string // of the source; empty: its endpoint
	Connect string // endpoint of a publisher that binds; or
	Bind    string // endpoint on which a publisher that connects is awaited
	Replay  string // endpoint of its replay socket, empty if there is none
	Topic   string // prefix of the topics that are subscribed to
	// ExactCopies counts the copies of first blocks too. That is right only if no request
	// asks the engine for full reports (vLLM: kv_cache_report_mode).
	ExactCopies bool
	MaxPayload  int           // bytes of one payload; 0: DefaultMaxPayload
	MaxBlocks   int           // blocks that the source may hold; 0: DefaultMaxBlocks
	Timeout     time.Duration // of a connection that says nothing, and of a replay; 0: DefaultTimeout
	Logger      *slog.Logger  // nil discards
	// Observe, if set, is called with each batch before it is applied, in the order in which they
	// are, those of replays included. payload is borrowed until it returns.
	Observe func(seq uint64, payload []byte)
}

const (
	DefaultMaxPayload = 64 << 20
	DefaultMaxBlocks  = 16 << 20
	DefaultTimeout    = 10 * time.Second
)

// maxSourceName bounds the name of a source, in bytes: it is in logs and metrics.
const maxSourceName = 256

// ErrConfig is wrapped by the errors of a Config.
var ErrConfig = errors.New("events: bad configuration of a source")

// endpoint returns the one of Connect and Bind that is set.
func (c *Config) endpoint() string {
	if c.Bind != "" {
		return c.Bind
	}
	return c.Connect
}

// check checks c and sets its defaults.
func (c *Config) check() error {
	if (c.Connect == "") == (c.Bind == "") {
		return fmt.Errorf("%w: it needs an endpoint to connect to or one to bind, not both", ErrConfig)
	}
	var err error
	if c.Bind != "" {
		_, _, err = zmtp.ListenAddress(c.Bind)
	} else {
		_, _, err = zmtp.DialAddress(c.Connect)
	}
	if err == nil && c.Replay != "" {
		_, _, err = zmtp.DialAddress(c.Replay)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if c.Name == "" {
		c.Name = c.endpoint()
	}
	if len(c.Name) > maxSourceName || !utf8.ValidString(c.Name) || strings.ContainsFunc(c.Name, unicode.IsControl) {
		return fmt.Errorf("%w: a name has at most %d bytes of UTF-8 without control characters", ErrConfig, maxSourceName)
	}
	if c.MaxPayload < 0 || c.MaxBlocks < 0 || c.Timeout < 0 {
		return fmt.Errorf("%w: a negative bound", ErrConfig)
	}
	setDefault(&c.MaxPayload, DefaultMaxPayload)
	setDefault(&c.MaxBlocks, DefaultMaxBlocks)
	setDefault(&c.Timeout, DefaultTimeout)
	return nil
}

func setDefault[T comparable](v *T, value T) {
	var zero T
	if *v == zero {
		*v = value
	}
}

// State is what a Follower does.
type State string

const (
	StateConnecting State = "connecting" // or waiting before the next attempt
	StateReplaying  State = "replaying"
	StateLive       State = "live"
)

// Status tells about a source. Counters only grow.
type Status struct {
	Name     string `json:"name"`
	Endpoint string `json:"endpoint"`
	State    State  `json:"state"`
	Stale    bool   `json:"stale"`
	Complete bool   `json:"complete"`
	Blocks   int64  `json:"blocks"` // held now; 0 if the Holder has no method Len() int
	NextSeq  uint64 `json:"next_sequence"`

	Batches  int64 `json:"batches"`
	Stored   int64 `json:"stored"`  // blocks
	Removed  int64 `json:"removed"` // blocks
	Cleared  int64 `json:"cleared"` // events
	Hints    int64 `json:"hints"`   // blocks of stores that no event removes
	Unknown  int64 `json:"unknown"` // events
	Gaps     int64 `json:"gaps"`
	Holes    int64 `json:"holes"`
	Replays  int64 `json:"replays"` // asked for
	Restarts int64 `json:"restarts"`
	Connects int64 `json:"connects"`
	Errors   int64 `json:"errors"`

	LastEvent time.Time `json:"last_event,omitzero"` // when the last batch arrived that was new
	LastError string    `json:"last_error,omitempty"`
}

// Follower follows one source. Safe for concurrent use.
//
// Two goroutines follow a connection: one reads it into a bounded queue, the other decodes and
// applies. The Holder is called by the second alone.
type Follower struct {
	cfg     Config
	tracker *tracker // of the goroutine run
	log     *sourceLog

	ctx      context.Context
	cancel   context.CancelFunc
	running  sync.WaitGroup
	acceptor *acceptor // nil if the source connects

	mu       sync.Mutex
	started  bool
	status   Status
	refusals refusals
}

// refusals are connections of other publishers that were refused while one was followed.
type refusals struct {
	number int64
	last   string    // error of the last, empty if the source has lost its publisher since
	logged time.Time // when one was logged
}

// NewFollower checks cfg; its errors are ErrConfig. Start begins to follow. The holder must be
// empty. If it has a method Len() int, that is called to watch cfg.MaxBlocks.
func NewFollower(cfg Config, holder Holder) (*Follower, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	f := &Follower{cfg: cfg, tracker: newTracker(holder, &cfg, new(Decoder)), log: newSourceLog(cfg.Logger, &cfg)}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	f.tracker.stopped = f.ctx.Err
	f.tracker.stats.Name, f.tracker.stats.Endpoint = cfg.Name, cfg.endpoint()
	f.tracker.stats.State = StateConnecting
	f.status = *f.tracker.stats
	return f, nil
}

// Start follows the source in the background until Close. It fails if the source binds and its
// endpoint cannot be bound, or if it was called before.
func (f *Follower) Start() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.started {
		return errors.New("events: the follower was started before")
	}
	if f.cfg.Bind != "" {
		a, err := listen(f.cfg.Bind, f.refused)
		if err != nil {
			return err
		}
		f.acceptor = a
		f.running.Go(func() { a.run(f.ctx) })
	}
	f.started = true
	f.running.Go(f.run)
	return nil
}

// Close stops and waits for all goroutines. The Holder is not called any more; it was told that
// the source is stale. Close may be called more than once. After it, Start fails.
func (f *Follower) Close() {
	f.mu.Lock()
	f.started = true
	f.mu.Unlock()
	f.cancel()
	f.running.Wait()
}

// Status returns the state of the source.
func (f *Follower) Status() Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.status
	s.Errors += f.refusals.number
	if f.refusals.last != "" {
		s.LastError = f.refusals.last
	}
	return s
}

// refused counts a connection of another publisher, unless there is none: then the connection came
// during a pause. A line a minute says so, as a publisher tries again all the time.
func (f *Follower) refused(from net.Addr) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.status.State == StateConnecting {
		return
	}
	r := &f.refusals
	r.number++
	r.last = fmt.Sprintf("events: refused another publisher, from %v: a source takes one at a time", from)
	if now := time.Now(); now.Sub(r.logged) >= logEvery {
		r.logged = now
		f.log.log.Warn("events: refused another publisher: a source takes one at a time", "from", from.String())
	}
}

// publishStatus makes the tracker's state that of Status, and logs what has changed.
func (f *Follower) publishStatus() {
	s := f.tracker.status()
	f.log.changed(s, f.tracker.reason)
	f.mu.Lock()
	f.status = *s
	if s.State == StateConnecting {
		f.refusals.last = ""
	}
	f.mu.Unlock()
}
