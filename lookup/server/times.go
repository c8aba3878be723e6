package server

import (
	"cmp"
	"sync/atomic"
	"time"

	"github.com/hitline/hitline/lookup/internal/monotime"
	"github.com/hitline/hitline/netproto"
)

// times are what the timeouts of a connection go by. The event loop sets them at the end of a turn, other goroutines
// read them. Times are in monotime, 0 for none.
type times struct {
	lastActive     atomic.Int64 // when the peer last sent, or got an answer of a job: IdleTimeout counts from it
	messageSince   atomic.Int64 // when the message that is being received began
	handshakeSince atomic.Int64 // when the unfinished ZMTP handshake began
	ttl            atomic.Int64 // of the ZMTP peer's heartbeat, in nanoseconds
	zmtp           atomic.Bool  // its peer speaks ZMTP
	expires        atomic.Int64 // when its authorization does, in Unix microseconds, as nanoseconds end in 2262; 0: never
}

// update sets the times at the end of a turn. messageReadAt is of the message that is being received.
func (t *times) update(reader *netproto.Reader, messageReadAt int64) {
	since, handshake := int64(0), int64(0)
	if reader.InMessage() {
		since = messageReadAt
	}
	if reader.InHandshake() {
		handshake = cmp.Or(t.handshakeSince.Load(), t.lastActive.Load())
	}
	setIfOther(&t.messageSince, since)
	setIfOther(&t.handshakeSince, handshake)
	setIfOther(&t.ttl, int64(reader.TTL()))
	if reader.ZMTP() && !t.zmtp.Load() {
		t.zmtp.Store(true)
	}
}

// setIfOther sets a value that others read, if it has changed: a store costs more than a load.
func setIfOther(v *atomic.Int64, to int64) {
	if v.Load() != to {
		v.Store(to)
	}
}

// expiredAt reports whether the authorization has expired at a time.
func (t *times) expiredAt(now time.Time) bool {
	expires := t.expires.Load()
	return expires != 0 && now.UnixMicro() >= expires
}

// zmtpPause is how long nothing must have happened on a ZMTP connection before Drain closes it. ZeroMQ does not send a
// request again that meets the close.
const zmtpPause = 50 * time.Millisecond

// hasPaused reports whether nothing has happened for zmtpPause.
func (t *times) hasPaused() bool { return monotime.Now()-t.lastActive.Load() >= int64(zmtpPause) }
