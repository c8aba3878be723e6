package events

import (
	"cmp"
	"fmt"
	"log/slog"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/hitline/hitline/internal/cpushare"
	"github.com/hitline/hitline/internal/fielderror"
	"github.com/hitline/hitline/router/events/internal/zmtp"
)

// Config configures a Follower. Endpoints are tcp://host:port or ipc://path, as ZeroMQ writes
// them.
type Config struct {
	Name     string // of the source; empty: its endpoint
	Endpoint string // of the publisher
	Bind     bool   // Endpoint is bound, and the publisher connects to it
	Replay   string // endpoint of its replay socket, empty if there is none
	Topic    string // prefix of the topics that are subscribed to
	// ExactCopies counts the copies of first blocks too. That is right only if no request
	// asks the engine for full reports (vLLM: kv_cache_report_mode).
	ExactCopies bool
	// OneRemoval says that the engine tells once that a block is gone, with its last copy. ExactCopies has no effect then.
	OneRemoval bool
	Rank       *int            // data-parallel rank that batches should have; nil: any
	MaxPayload int             // bytes of one payload; 0: DefaultMaxPayload
	Memory     *Memory         // of all sources together, for this MaxPayload; nil: one of its own
	CPU        *cpushare.Share // that sources compute on; nil: all processors
	// Timeout is how long a connection may be silent, heartbeats included, how long a batch may take to arrive, and to
	// wait for memory, and how long a replay may wait; 0: DefaultTimeout.
	Timeout time.Duration
	Logger  *slog.Logger // nil discards
	// Resume, if set, is where the source begins, as if the connection had been lost there: the blocks of its
	// Holder count again once a replay has shown that the publisher is the same. If it is not, or
	// without Replay, they are cleared. ExactCopies must be what it was. It is not changed.
	Resume *Checkpoint
	// CheckFirst, if set, is called with first blocks of prompts until it returns false, and again after Cleared. The block
	// is borrowed until it returns.
	CheckFirst func(*FirstBlock) (more bool)
	// Cleared, if set, is called before all blocks are dropped: the publisher may be another one, and hash otherwise. It
	// must not block.
	Cleared func()
	// Changed, if set, is called after Status has another Stale or Complete, or Blocks have become 0 or are 0 no longer. It
	// must not block.
	Changed func()
	// Observe, if set, is called with each batch before it is applied, in that order, those of
	// replays included. payload is borrowed until it returns.
	Observe func(seq uint64, payload []byte)
}

const (
	// DefaultMaxPayload is far more than a scheduler step of an engine stores: one of 65,536 tokens in four KV cache
	// groups takes 2 MiB, a full report of a million tokens 7.
	DefaultMaxPayload = 8 << 20
	DefaultTimeout    = 10 * time.Second
	// maxEndpoint bounds an endpoint in bytes: a host name has 253.
	maxEndpoint = 512
)

// MaxName bounds each name in bytes, of sources, topics, models, engines and media: they are in logs, answers and
// labels of metrics.
const MaxName = 256

// IsName reports whether text can be such a name: 1 to MaxName bytes of UTF-8, of which people see each
// character.
func IsName(text string) bool {
	isHidden := func(r rune) bool { return !unicode.IsPrint(r) }
	return text != "" && len(text) <= MaxName && utf8.ValidString(text) && !strings.ContainsFunc(text, isHidden)
}

// Validate returns what is wrong with c, of which it changes nothing. The error names a field, see
// package fielderror.
func (c Config) Validate() error { return c.check() }

// check checks c and sets its defaults.
func (c *Config) check() error {
	if c.Endpoint == "" {
		return invalid("endpoint", "has no endpoint; give the publisher's, such as tcp://127.0.0.1:5557")
	}
	for field, endpoint := range map[string]string{"endpoint": c.Endpoint, "replay_endpoint": c.Replay} {
		if len(endpoint) > maxEndpoint {
			return invalid(field, "%.40q… has %d bytes; at most %d are accepted", endpoint, len(endpoint), maxEndpoint)
		}
	}
	split := zmtp.DialAddress
	if c.Bind {
		split = zmtp.ListenAddress
	}
	if _, _, err := split(c.Endpoint); err != nil {
		return invalid("endpoint", "%w", err)
	}
	if _, _, err := zmtp.DialAddress(c.Replay); c.Replay != "" && err != nil {
		return invalid("replay_endpoint", "%w", err)
	}
	c.Name = cmp.Or(c.Name, c.Endpoint)
	if !IsName(c.Name) {
		return invalid("name", "%q is no name; give 1 to %d bytes of printable characters", c.Name, MaxName)
	}
	if c.Topic != "" && !IsName(c.Topic) {
		return invalid("topic", "%.40q is no topic; give up to %d bytes of printable characters", c.Topic, MaxName)
	}
	if c.MaxPayload < 0 || c.Timeout < 0 {
		return fmt.Errorf("%w: a negative bound", fielderror.ErrConfig)
	}
	c.MaxPayload, c.Timeout = cmp.Or(c.MaxPayload, DefaultMaxPayload), cmp.Or(c.Timeout, DefaultTimeout)
	if c.Memory == nil {
		c.Memory = NewMemory(c.MaxPayload)
	}
	return nil
}

// SplitEndpoint returns the network and the address, as net.Dial takes them, of an endpoint to connect to.
func SplitEndpoint(endpoint string) (network, address string, err error) {
	return zmtp.DialAddress(endpoint)
}

// invalid is a fielderror.ErrConfig about a field.
func invalid(field, format string, args ...any) error {
	return fmt.Errorf("%w: %w", fielderror.ErrConfig, fielderror.New([]string{field}, format, args...))
}
