package server

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/hitline/hitline/netproto"
)

// closeReason is the reason why a connection ended. Stat.Closed counts each under its name.
type closeReason uint32

const (
	closedByPeer closeReason = iota // the peer closed it, or it broke
	closedFirstByte
	closedFlags
	closedCommand
	closedMessageLength
	closedFrameCount
	closedEnvelope
	closedDelimiter
	closedGreeting
	closedVersion
	closedMechanism
	closedHandshake
	closedProperties
	closedSocketType
	closedPeerError
	closedBadCommand
	closedCredentials
	closedSlowReader
	closedInFlight
	closedWriteTimeout
	closedMemory
	closedMessageTimeout
	closedHandshakeTimeout
	closedHeartbeatTimeout
	closedIdleTimeout
	closedTLSHandshake
	closedMaxConnections
	closedRevoked
	closedExpired
	closedDraining
	numReasons
)

var reasonNames = [numReasons]string{
	closedByPeer:           "peer",
	closedFirstByte:        "bad_first_byte",
	closedFlags:            "bad_flags",
	closedCommand:          "command_frame",
	closedMessageLength:    "message_too_long",
	closedFrameCount:       "too_many_frames",
	closedEnvelope:         "envelope_too_long",
	closedDelimiter:        "no_delimiter",
	closedGreeting:         "zmtp_greeting",
	closedVersion:          "zmtp_version",
	closedMechanism:        "zmtp_mechanism",
	closedHandshake:        "zmtp_handshake",
	closedProperties:       "zmtp_properties",
	closedSocketType:       "zmtp_socket_type",
	closedPeerError:        "zmtp_peer_error",
	closedBadCommand:       "zmtp_command",
	closedCredentials:      "zmtp_credentials",
	closedSlowReader:       "slow_reader",
	closedInFlight:         "in_flight",
	closedWriteTimeout:     "write_timeout",
	closedMemory:           "memory",
	closedMessageTimeout:   "message_timeout",
	closedHandshakeTimeout: "handshake_timeout",
	closedHeartbeatTimeout: "heartbeat_timeout",
	closedIdleTimeout:      "idle_timeout",
	closedTLSHandshake:     "tls_handshake",
	closedMaxConnections:   "max_connections",
	closedRevoked:          "credential_revoked",
	closedExpired:          "credential_expired",
	closedDraining:         "draining",
}

// String returns the name that Stat and the metrics use.
func (r closeReason) String() string { return reasonNames[r] }

// CloseReasons returns the keys that Stat.Closed may have. The caller owns the result.
func CloseReasons() []string { return slices.Clone(reasonNames[:]) }

// bySilence reports whether the peer has sent nothing for too long.
func (r closeReason) bySilence() bool { return r == closedHeartbeatTimeout || r == closedIdleTimeout }

// reasonOf returns the reason for an error of netproto.Reader, or why an authorization is gone.
func reasonOf(err error) closeReason {
	for _, m := range [...]struct {
		err    error
		reason closeReason
	}{
		{netproto.ErrFirstByte, closedFirstByte},
		{netproto.ErrFlags, closedFlags},
		{netproto.ErrCommand, closedCommand},
		{netproto.ErrMessageLength, closedMessageLength},
		{netproto.ErrFrameCount, closedFrameCount},
		{netproto.ErrEnvelope, closedEnvelope},
		{netproto.ErrNoDelimiter, closedDelimiter},
		{netproto.ErrGreeting, closedGreeting},
		{netproto.ErrVersion, closedVersion},
		{netproto.ErrMechanism, closedMechanism},
		{netproto.ErrHandshake, closedHandshake},
		{netproto.ErrProperties, closedProperties},
		{netproto.ErrSocketType, closedSocketType},
		{netproto.ErrPeerError, closedPeerError},
		{netproto.ErrBadCommand, closedBadCommand},
		{netproto.ErrCredentials, closedCredentials},
		{errSlowReader, closedSlowReader},
		{errInFlight, closedInFlight},
		{errRevoked, closedRevoked},
		{errExpired, closedExpired},
	} {
		if errors.Is(err, m.err) {
			return m.reason
		}
	}
	return closedByPeer
}

// withHint adds to an error of netproto.Reader what its cause may be.
func withHint(err error) error {
	const handshakeRecord = 0x16 // the first byte of a TLS client
	var frame *netproto.FrameError
	if errors.Is(err, netproto.ErrFirstByte) && errors.As(err, &frame) && frame.Byte == handshakeRecord {
		return fmt.Errorf("%w; if this is a client with TLS, this address has none: it begins with tcp://", err)
	}
	return err
}

// closeCounters counts connections by the reason of their end.
type closeCounters [numReasons]atomic.Int64

// byName returns the counters that are not 0, by name.
func (c *closeCounters) byName() map[string]int64 {
	counts := map[string]int64{}
	for r := range c {
		if n := c[r].Load(); n > 0 {
			counts[reasonNames[r]] = n
		}
	}
	return counts
}
