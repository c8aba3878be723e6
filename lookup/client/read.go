package client

import (
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/hitline/hitline/netproto"
)

// replyReader is the state of the goroutine that reads replies. The writer uses it only while
// there is no such goroutine.
type replyReader struct {
	stopped chan struct{} // closed when the goroutine has ended
	in      []byte        // bytes read are in[:inLen]
	inLen   int
	frames  [][]byte // of the last reply; borrowed from in
}

// keepReply is the largest read buffer in bytes that is kept.
const keepReply = 64 << 10

// startReader starts the goroutine that reads from a new connection.
func (t *transport) startReader(nc net.Conn) {
	r := &t.reader
	*r = replyReader{stopped: make(chan struct{}), in: make([]byte, 16<<10), frames: r.frames}
	go func() {
		defer close(r.stopped)
		err := t.receive(nc)
		t.mu.Lock()
		if t.readErr == nil { // closeSilent has a better one
			t.readErr = err
		}
		t.wakeWriter()
		t.mu.Unlock()
		closeConn(nc) // ends a write in progress, after readErr is set for failConn
	}()
}

// receive reads and delivers replies until the connection fails, and returns why.
func (t *transport) receive(nc net.Conn) error {
	r := &t.reader
	for {
		if r.inLen == len(r.in) {
			r.in = append(r.in, make([]byte, len(r.in))...)
		}
		n, err := nc.Read(r.in[r.inLen:])
		r.inLen += n
		if n > 0 {
			if err := t.deliverReplies(); err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
	}
}

// deliverReplies delivers the whole replies in in.
func (t *transport) deliverReplies() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	r, at := &t.reader, 0
	for at < r.inLen {
		frames, used, err := netproto.ParseMessage(r.in[at:r.inLen], t.limits, r.frames[:0])
		if errors.Is(err, netproto.ErrShort) {
			break
		}
		if err != nil {
			return fmt.Errorf("%w: %w", ErrReply, err)
		}
		r.frames = frames
		if err := t.deliverReply(frames); err != nil {
			return err
		}
		at += used
	}
	r.discard(at)
	t.silentAt = time.Now()
	if len(t.queue) > 0 {
		t.wakeWriter() // one more may fit
	}
	return nil
}

// deliverReply delivers one reply. An error fails the connection. mu is held.
func (t *transport) deliverReply(frames [][]byte) error {
	i, generation, body, ok := splitEnvelope(frames)
	if !ok || !t.inFlight.find(i, generation) {
		return errEnvelope
	}
	cl := t.inFlight.remove(i)
	if cl != nil && cl.handle != nil {
		return t.deliverSetup(cl, body)
	}
	t.refusedLast = isRefusal(body[0])
	if cl == nil { // abandoned
		return nil
	}
	var err error
	switch cl.tag {
	case netproto.TagLookup, netproto.TagLookupFrom:
		cl.hit, err = readHit(body, cl.numTokens, t.pool)
	default:
		cl.frames, err = cloneFrames(body), readStatus(body)
	}
	t.deliver(cl, err)
	return nil
}

// discard removes the first n bytes of in, and shrinks in if it is larger than keepReply.
func (r *replyReader) discard(n int) {
	if n == 0 {
		return
	}
	r.inLen = copy(r.in, r.in[n:r.inLen])
	if len(r.in) > keepReply && r.inLen < keepReply {
		r.in, r.frames = append(make([]byte, 0, keepReply), r.in[:r.inLen]...)[:keepReply], nil
	}
}
