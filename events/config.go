package events

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/hitline/hitline/events/internal/zmtp"
)

// Config configures a Follower. Endpoints are tcp://host:port or ipc://path, as ZeroMQ writes
// them.
type Config struct {
	Name    string // of the source; empty: its endpoint
	Connect string // endpoint of a publisher that binds; empty if Bind is set
	Bind    string // endpoint to which a publisher connects
	Replay  string // endpoint of its replay socket, empty if there is none
	Topic   string // prefix of the topics that are subscribed to
	// ExactCopies counts the copies of first blocks too. That is right only if no request
	// asks the engine for full reports (vLLM: kv_cache_report_mode).
	ExactCopies bool
	MaxPayload  int // bytes of one payload; 0: DefaultMaxPayload
	MaxBlocks   int // blocks that the source may hold; 0: DefaultMaxBlocks
	// Timeout is how long a connection may be silent, heartbeats included, and how long a replay may
	// wait; 0: DefaultTimeout.
	Timeout time.Duration
	Logger  *slog.Logger // nil discards
	// Resume, if set, is where the source begins, as if the connection had been lost there: the blocks of its
	// Holder count again once a replay has shown that the publisher is the same. If it is not, or
	// without Replay, they are cleared. ExactCopies must be what it was. It is not changed.
	Resume *Checkpoint
	// Observe, if set, is called with each batch before it is applied, in that order, those of
	// replays included. payload is borrowed until it returns.
	Observe func(seq uint64, payload []byte)
}

const (
	DefaultMaxPayload = 64 << 20
	DefaultMaxBlocks  = 16 << 20
	DefaultTimeout    = 10 * time.Second
)

// maxSourceName bounds the name of a source, in bytes: the name is in logs and metrics.
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
