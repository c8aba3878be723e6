package client

import (
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/hitline/hitline/netproto"
)

// replyReader is the state of the goroutine that reads replies. The pipe's owner uses it
// only while there is no such goroutine.
type replyReader struct {
	stopped chan struct{} // closed when the goroutine has ended
	in      []byte        // bytes read are in[:inLen]
	inLen   int
	frames  [][]byte // of the last reply; borrowed from in
	replied bool     // the server has answered on this connection
}

// startReader starts the goroutine that reads from a new connection.
func (p *pipe) startReader(nc net.Conn) {
	r := &p.reader
	*r = replyReader{stopped: make(chan struct{}), in: make([]byte, 16<<10), frames: r.frames}
	if p.dialer.instances != nil {
		p.instance = newInstanceCall()
	}
	go func() {
		defer close(r.stopped)
		err := p.receive(nc)
		p.mu.Lock()
		p.readErr = err
		p.wakeWriter()
		p.mu.Unlock()
		closeConn(nc) // ends a write in progress, after readErr is set for failConn
	}()
}

// receive reads and delivers replies until the connection fails, and returns why.
func (p *pipe) receive(nc net.Conn) error {
	r := &p.reader
	if err := nc.SetReadDeadline(deadlineAfter(2 * p.timeout)); err != nil {
		return err
	}
	for {
		if r.inLen == len(r.in) {
			r.in = append(r.in, make([]byte, len(r.in))...)
		}
		n, err := nc.Read(r.in[r.inLen:])
		r.inLen += n
		if n > 0 {
			if err := p.deliverReplies(); err != nil {
				return err
			}
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = p.checkSilence(nc)
		}
		if err != nil {
			return err
		}
	}
}

// checkSilence returns an error if replies are due and none came for twice the timeout.
// Otherwise it sets the read deadline of the next check.
func (p *pipe) checkSilence(nc net.Conn) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	at := now.Add(2 * p.timeout)
	if p.inFlight() > 0 {
		at = p.silentSince.Add(2 * p.timeout)
	}
	if !at.After(now) {
		return fmt.Errorf("no reply for %v: %w", 2*p.timeout, os.ErrDeadlineExceeded)
	}
	return nc.SetReadDeadline(at)
}

// deliverReplies delivers the whole replies in in.
func (p *pipe) deliverReplies() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	r, at := &p.reader, 0
	for at < r.inLen {
		frames, used, err := netproto.ParseMessage(r.in[at:r.inLen], netproto.Limits{}, r.frames[:0])
		if errors.Is(err, netproto.ErrShort) {
			break
		}
		if err != nil {
			return fmt.Errorf("%w: %w", ErrReply, err)
		}
		r.frames = frames
		if err := p.deliverReply(frames); err != nil {
			return err
		}
		at += used
	}
	r.discard(at)
	p.silentSince = time.Now()
	if len(p.queue) > 0 {
		p.wakeWriter() // slots may be free again
	}
	return nil
}

// deliverReply finishes the call of one reply. mu is held.
func (p *pipe) deliverReply(frames [][]byte) error {
	i, generation, body, ok := splitEnvelope(frames)
	if !ok || int(i) >= len(p.slots) || !p.slots[i].inUse || p.slots[i].generation != generation {
		return errEnvelope
	}
	if !p.reader.replied {
		p.reader.replied = true
		p.dialer.recordSuccess()
	}
	cl := p.freeSlot(i)
	if cl == nil {
		return nil // abandoned
	}
	if cl.instance {
		p.handleInstance(body)
		return nil
	}
	var err error
	switch cl.tag {
	case netproto.TagLookup:
		cl.hit, err = readHit(body)
	default:
		cl.frames, err = cloneFrames(body), readStatus(body)
	}
	if cl.state == callWriting { // blobWritten finishes it: its blob may still be read
		cl.answered, cl.err = true, err
		return nil
	}
	p.finish(cl, err)
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
