package server

import (
	"time"

	"github.com/hitline/hitline/netproto"
)

// Limits protect a server from its peers. Zero fields mean the defaults, but
// for IdleTimeout, where zero means off.
type Limits struct {
	MaxMessage     int64 // bytes of a request, headers included; past it the connection is closed
	MaxFrames      int   // frames of a request; past it the connection is closed
	MaxHashes      int   // hashes of a lookup; past it the answer is 00
	MaxConnections int   // connections at a time; past it new ones are closed at once
	// MaxInFlight bounds the requests of one connection that wait for a backend;
	// past it the answer is 00. The memory backend answers before it reads on, so
	// with it at most one is in flight.
	MaxInFlight int
	MaxUnsent   int // bytes of replies that a connection has not read; past it it is closed

	HandshakeTimeout time.Duration // for a ZMTP handshake, from its first byte to its last; past it the connection is closed
	MessageTimeout   time.Duration // from a request's first byte to its last; past it the connection is closed
	IdleTimeout      time.Duration // between requests; past it the connection is closed; 0 is off
}

// DefaultLimits returns the limits of a server that is told nothing else.
func DefaultLimits() Limits {
	return Limits{
		MaxMessage:       netproto.DefaultMaxMessage,
		MaxFrames:        netproto.DefaultMaxFrames,
		MaxHashes:        2 << 20, // a prompt of 33 million tokens in blocks of 16
		MaxConnections:   4096,
		MaxInFlight:      1024,
		MaxUnsent:        1 << 20, // a hundred thousand lookup replies
		HandshakeTimeout: 10 * time.Second,
		MessageTimeout:   60 * time.Second,
	}
}

// withDefaults fills in what is zero.
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
	if l.HandshakeTimeout == 0 {
		l.HandshakeTimeout = d.HandshakeTimeout
	}
	if l.MessageTimeout == 0 {
		l.MessageTimeout = d.MessageTimeout
	}
	return l
}
