package server

import (
	"time"

	"github.com/hitline/hitline/netproto"
)

// Limits protect a server from its peers. Zero fields mean the defaults of DefaultLimits; a
// zero IdleTimeout means none.
type Limits struct {
	// A connection that exceeds one of these is closed.
	MaxMessage int64 // bytes of a request, headers included
	MaxFrames  int   // frames of a request
	MaxUnsent  int   // bytes of replies that the peer has not read

	// MaxHashes bounds the hashes of a lookup. More are answered 00.
	MaxHashes int
	// MaxConnections bounds the open connections. Further ones are closed at once.
	MaxConnections int
	// MaxInFlight bounds the unanswered requests of one connection over a backend. Further
	// ones are answered 00. Over the memory index there is never more than one.
	MaxInFlight int

	// MaxMemory bounds the bytes that all connections hold together: replies that are not
	// read, requests that have not ended, and over a backend their hashes, keys and answers.
	// Beyond it the connections that hold most are closed. Config.Memory overrides it.
	MaxMemory int64

	// A connection that exceeds one of these is closed.
	WriteTimeout     time.Duration // while the peer reads none of its replies
	HandshakeTimeout time.Duration // from the first byte of a ZMTP handshake to its last
	MessageTimeout   time.Duration // from the first byte of a request to its last
	IdleTimeout      time.Duration // between requests; 0 means none
}

// DefaultLimits returns the defaults of Limits.
func DefaultLimits() Limits {
	return Limits{
		MaxMessage:       netproto.DefaultMaxMessage,
		MaxFrames:        netproto.DefaultMaxFrames,
		MaxHashes:        2 << 20, // a prompt of 33 million tokens in blocks of 16
		MaxConnections:   4096,
		MaxInFlight:      1024,
		MaxUnsent:        1 << 20, // a hundred thousand lookup replies
		MaxMemory:        128 << 20,
		WriteTimeout:     30 * time.Second,
		HandshakeTimeout: 10 * time.Second,
		MessageTimeout:   60 * time.Second,
	}
}

// withDefaults returns the limits with zero fields replaced.
func (l Limits) withDefaults() Limits {
	d := DefaultLimits()
	for _, f := range []struct{ have, def *int }{
		{&l.MaxFrames, &d.MaxFrames}, {&l.MaxHashes, &d.MaxHashes}, {&l.MaxConnections, &d.MaxConnections},
		{&l.MaxInFlight, &d.MaxInFlight}, {&l.MaxUnsent, &d.MaxUnsent},
	} {
		if *f.have == 0 {
			*f.have = *f.def
		}
	}
	if l.MaxMessage == 0 {
		l.MaxMessage = d.MaxMessage
	}
	if l.MaxMemory == 0 {
		l.MaxMemory = d.MaxMemory
	}
	for _, f := range []struct{ have, def *time.Duration }{
		{&l.WriteTimeout, &d.WriteTimeout}, {&l.HandshakeTimeout, &d.HandshakeTimeout}, {&l.MessageTimeout, &d.MessageTimeout},
	} {
		if *f.have == 0 {
			*f.have = *f.def
		}
	}
	return l
}
