package lookup

import (
	"errors"
	"sync/atomic"

	"github.com/hitline/hitline/netproto"
)

// closeReason says why a connection ended. Each is counted under its name in the
// reply to stat.
type closeReason uint32

const (
	closedByPeer closeReason = iota // the peer closed it, or it broke
	closedFirstByte
	closedGreeting
	closedFlags
	closedCommand
	closedMessageLength
	closedFrameCount
	closedEnvelope
	closedSlowReader
	closedMessageTimeout
	closedIdleTimeout
	closedMaxConnections
	closedDraining
	numReasons
)

var reasonNames = [numReasons]string{
	closedByPeer:         "peer",
	closedFirstByte:      "bad_first_byte",
	closedGreeting:       "zmtp_not_served",
	closedFlags:          "bad_flags",
	closedCommand:        "command_frame",
	closedMessageLength:  "message_too_long",
	closedFrameCount:     "too_many_frames",
	closedEnvelope:       "envelope_too_long",
	closedSlowReader:     "slow_reader",
	closedMessageTimeout: "message_timeout",
	closedIdleTimeout:    "idle_timeout",
	closedMaxConnections: "max_connections",
	closedDraining:       "draining",
}

func (r closeReason) String() string { return reasonNames[r] }

// reasonOf maps an error of the reader to its reason.
func reasonOf(err error) closeReason {
	for _, m := range [...]struct {
		err    error
		reason closeReason
	}{
		{netproto.ErrFirstByte, closedFirstByte},
		{netproto.ErrGreeting, closedGreeting},
		{netproto.ErrFlags, closedFlags},
		{netproto.ErrCommand, closedCommand},
		{netproto.ErrMessageLength, closedMessageLength},
		{netproto.ErrFrameCount, closedFrameCount},
		{netproto.ErrEnvelope, closedEnvelope},
	} {
		if errors.Is(err, m.err) {
			return m.reason
		}
	}
	return closedByPeer
}

// closeCounters counts connections by the reason of their end.
type closeCounters [numReasons]atomic.Int64

// snapshot returns the counters that are not zero, by name.
func (c *closeCounters) snapshot() map[string]int64 {
	counts := map[string]int64{}
	for r := range c {
		if n := c[r].Load(); n > 0 {
			counts[reasonNames[r]] = n
		}
	}
	return counts
}
