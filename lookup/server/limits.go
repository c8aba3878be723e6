package server

import (
	"cmp"
	"fmt"
	"time"

	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/server/internal/listen"
	"github.com/hitline/hitline/netproto"
)

// The limits that are configured, and their defaults.

// Limits protect a server from its peers. Zero fields mean the defaults of DefaultLimits; a
// zero IdleTimeout means none.
type Limits struct {
	// A connection that exceeds one of these is closed.
	MaxMessage int64 // bytes of a request, headers included
	MaxUnsent  int   // bytes of replies that the peer has not read

	// MaxHashes bounds the hashes of a lookup. More are answered 00.
	MaxHashes int
	// MaxConnections bounds the open connections. Further ones are closed at once.
	MaxConnections int
	// MaxInFlight bounds the unanswered jobs of one connection: the requests that workers answer. Further
	// ones are refused as busy, and a connection with twice as many is closed.
	MaxInFlight int

	// MaxMemory bounds the bytes that all connections hold together: replies that are not
	// read, bytes that are kept, requests that have not ended, the hashes of jobs, and over a backend
	// keys and answers. Requests beyond it are refused, and then connections closed whose peers make no progress.
	// Config.Memory overrides it.
	MaxMemory int64

	// A connection that exceeds one of these is closed.
	WriteTimeout     time.Duration // while the peer reads none of its replies
	HandshakeTimeout time.Duration // from the first byte of a ZMTP handshake, or the accept of a TLS one, to its last
	MessageTimeout   time.Duration // from the first byte of a request to its last
	IdleTimeout      time.Duration // between requests; 0 means none
}

// DefaultLimits returns the defaults of Limits.
func DefaultLimits() Limits {
	return Limits{
		MaxMessage:       netproto.DefaultMaxMessage,
		MaxHashes:        2_000_000, // of 32 bytes they fit a message: a prompt of 32 million tokens in blocks of 16
		MaxConnections:   4096,
		MaxInFlight:      1024,
		MaxUnsent:        1 << 20, // a hundred thousand lookup replies
		MaxMemory:        128 << 20,
		WriteTimeout:     30 * time.Second,
		HandshakeTimeout: 10 * time.Second,
		MessageTimeout:   60 * time.Second,
	}
}

// check returns api.ErrConfig if a limit is negative.
func (l Limits) check() error {
	for _, of := range [...]struct {
		name  string
		value int64
	}{
		{"MaxMessage", l.MaxMessage}, {"MaxUnsent", int64(l.MaxUnsent)},
		{"MaxHashes", int64(l.MaxHashes)}, {"MaxConnections", int64(l.MaxConnections)}, {"MaxInFlight", int64(l.MaxInFlight)},
		{"MaxMemory", l.MaxMemory}, {"WriteTimeout", int64(l.WriteTimeout)}, {"HandshakeTimeout", int64(l.HandshakeTimeout)},
		{"MessageTimeout", int64(l.MessageTimeout)}, {"IdleTimeout", int64(l.IdleTimeout)},
	} {
		if of.value < 0 {
			return fmt.Errorf("%w: limit %s is %d, want 0 or more", api.ErrConfig, of.name, of.value)
		}
	}
	return nil
}

// withDefaults returns the limits with zero fields replaced.
func (l Limits) withDefaults() Limits {
	d := DefaultLimits()
	l.MaxMessage = cmp.Or(l.MaxMessage, d.MaxMessage)
	l.MaxUnsent = cmp.Or(l.MaxUnsent, d.MaxUnsent)
	l.MaxHashes = cmp.Or(l.MaxHashes, d.MaxHashes)
	l.MaxConnections = cmp.Or(l.MaxConnections, d.MaxConnections)
	l.MaxInFlight = cmp.Or(l.MaxInFlight, d.MaxInFlight)
	l.MaxMemory = cmp.Or(l.MaxMemory, d.MaxMemory)
	l.WriteTimeout = cmp.Or(l.WriteTimeout, d.WriteTimeout)
	l.HandshakeTimeout = cmp.Or(l.HandshakeTimeout, d.HandshakeTimeout)
	l.MessageTimeout = cmp.Or(l.MessageTimeout, d.MessageTimeout)
	return l
}

// OpenFileLimit returns the soft limit of open files, a high one if it cannot be told. Go's runtime raises it
// to the hard limit at start.
func OpenFileLimit() uint64 { return listen.OpenFileLimit() }

// maxInFlightBytes is how many bytes of requests a client may have in flight: see api.Limits. 56
// lookups of 2,048 hashes, or 8 of 16,384, then wait for each other.
const maxInFlightBytes = 4 << 20

// inEffect returns the limits with zero fields replaced, and MaxConnections lowered to what the
// limit of open files allows.
func (l Limits) inEffect(cfg *Config, listeners []Listener) Limits {
	l = l.withDefaults()
	files := OpenFileLimit()
	if capped := listen.CapConnections(l.MaxConnections, files, descriptorsOf(listeners), uint64(cfg.OtherConnections)); capped < l.MaxConnections {
		cfg.Logger.Warn("max_connections lowered to what the limit of open files allows; raise it (ulimit -n)",
			"max_connections", capped, "configured", l.MaxConnections, "open_files", files)
		l.MaxConnections = capped
	}
	return l
}

// descriptorsOf returns how many descriptors a connection has at most: one, or one and a pair of sockets if a listener
// is one of TLS.
func descriptorsOf(listeners []Listener) uint64 {
	for i := range listeners {
		if listeners[i].TLS != nil {
			return 3
		}
	}
	return 1
}
