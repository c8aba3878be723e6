package server

import (
	"errors"

	"github.com/hitline/hitline/internal/requesterror"
	"github.com/hitline/hitline/lookup/server/internal/tlspair"
	"github.com/hitline/hitline/netproto"
)

// closeReason is the reason why a connection ended. Stat.Closed counts each under its name.
type closeReason uint32

const (
	notClosed    closeReason = iota // none is decided
	closedByPeer                    // the peer closed it, or it broke
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
	closedPoolGone
	closedDraining
	closedFault
	numReasons
)

// Why connections end, besides what netproto.Reader returns.
var (
	errConnGone     = errors.New("the connection is gone")
	errSlowReader   = errors.New("the peer does not read its replies")
	errHoldsTooMuch = errors.New("memory is short, and more is kept for this connection than it may have in flight")
	errInFlight     = errors.New("more is in flight than limits.max_in_flight and the limits of a message allow")
	errRevoked      = errors.New("its credential is gone")
	errExpired      = errors.New("its credential has expired")
)

// reasons are the names of the reasons, and the errors that close a connection for each, nil if none does.
var reasons = [numReasons]struct {
	name string
	err  error
}{
	closedByPeer:           {"peer", nil},
	closedFirstByte:        {"bad_first_byte", netproto.ErrFirstByte},
	closedFlags:            {"bad_flags", netproto.ErrFlags},
	closedCommand:          {"command_frame", netproto.ErrCommand},
	closedMessageLength:    {"message_too_long", netproto.ErrMessageLength},
	closedFrameCount:       {"too_many_frames", netproto.ErrFrameCount},
	closedEnvelope:         {"envelope_too_long", netproto.ErrEnvelope},
	closedDelimiter:        {"no_delimiter", netproto.ErrNoDelimiter},
	closedGreeting:         {"zmtp_greeting", netproto.ErrGreeting},
	closedVersion:          {"zmtp_version", netproto.ErrVersion},
	closedMechanism:        {"zmtp_mechanism", netproto.ErrMechanism},
	closedHandshake:        {"zmtp_handshake", netproto.ErrHandshake},
	closedProperties:       {"zmtp_properties", netproto.ErrProperties},
	closedSocketType:       {"zmtp_socket_type", netproto.ErrSocketType},
	closedPeerError:        {"zmtp_peer_error", netproto.ErrPeerError},
	closedBadCommand:       {"zmtp_command", netproto.ErrBadCommand},
	closedCredentials:      {"zmtp_credentials", netproto.ErrCredentials},
	closedSlowReader:       {"slow_reader", errSlowReader},
	closedInFlight:         {"in_flight", errInFlight},
	closedWriteTimeout:     {"write_timeout", tlspair.ErrUnread},
	closedMemory:           {"memory", errHoldsTooMuch},
	closedMessageTimeout:   {"message_timeout", nil},
	closedHandshakeTimeout: {"handshake_timeout", nil},
	closedHeartbeatTimeout: {"heartbeat_timeout", nil},
	closedIdleTimeout:      {"idle_timeout", nil},
	closedTLSHandshake:     {"tls_handshake", tlspair.ErrHandshake},
	closedMaxConnections:   {"max_connections", nil},
	closedRevoked:          {"credential_revoked", errRevoked},
	closedExpired:          {"credential_expired", errExpired},
	closedPoolGone:         {"pool_gone", nil},
	closedDraining:         {"draining", tlspair.ErrStopping},
	closedFault:            {"fault", requesterror.ErrFault},
}

// String returns the name that Stat and the metrics use.
func (r closeReason) String() string { return reasons[r].name }

// CloseReasons returns the keys that Stat.Closed may have. The caller owns the result.
func CloseReasons() (names []string) {
	for r := closedByPeer; r < numReasons; r++ {
		names = append(names, r.String())
	}
	return names
}

// bySilence reports whether the peer has sent nothing for too long.
func (r closeReason) bySilence() bool { return r == closedHeartbeatTimeout || r == closedIdleTimeout }

// reasonOf returns the reason for an error of netproto.Reader, or why an authorization is gone.
func reasonOf(err error) closeReason {
	for r := range numReasons {
		if reasons[r].err != nil && errors.Is(err, reasons[r].err) {
			return r
		}
	}
	return closedByPeer
}
