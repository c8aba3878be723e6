package client

import (
	"errors"
	"os"
	"runtime"
	"slices"
	"time"
)

// writeQueued writes queued calls, or dials if there is no connection. An error means that
// the connection has failed.
func (p *pipe) writeQueued() error {
	runtime.Gosched() // callers that are about to queue a call share this write
	if p.conn == nil {
		return p.connect()
	}
	p.mu.Lock()
	p.encodeBatch()
	p.interrupted = false
	err := p.conn.SetWriteDeadline(deadlineAfter(2 * p.timeout))
	p.mu.Unlock()
	if err == nil {
		if !p.resumable {
			p.joinParts()
		}
		err = p.write()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.batchWritten() // also after a failed write: replies may still come before failConn
	return err
}

// encodeBatch moves calls from the queue to writing and fills parts. mu is held.
func (p *pipe) encodeBatch() {
	if p.inFlight() == 0 {
		p.silentSince = time.Now()
	}
	p.writing = p.writing[:0]
	if p.instance != nil {
		p.writing = append(p.writing, p.instance)
		p.instance = nil
	}
	n, bytes := 0, 0
	for most := min(p.available(), maxBatchWrite); n < len(p.queue) && len(p.writing) < most; n++ {
		cl := p.queue[n]
		if cl.async != nil && cl.async.expired() {
			p.finish(cl, exchangeError(os.ErrDeadlineExceeded))
			continue
		}
		if bytes += len(cl.blob); !p.resumable && bytes > maxJoined && len(p.writing) > 0 {
			break
		}
		p.writing = append(p.writing, cl)
	}
	p.queue = slices.Delete(p.queue, 0, n)
	p.head, p.ends = p.head[:0], p.ends[:0]
	var id [envelopeLen]byte
	for _, cl := range p.writing {
		cl.state, cl.slot = callWriting, p.allocSlot(cl)
		p.head = cl.appendHead(p.head, appendEnvelope(id[:0], cl.slot, p.slots[cl.slot].generation))
		p.ends = append(p.ends, len(p.head))
	}
	p.parts = p.parts[:0]
	begin := 0
	for i, cl := range p.writing {
		p.parts = append(p.parts, p.head[begin:p.ends[i]], cl.blob)
		begin = p.ends[i]
	}
}

// maxJoined bounds the blobs in bytes of a batch that joinParts copies. One blob may be of
// any size.
const maxJoined = 1 << 20

// joinParts copies the parts into one. So no abandoned call needs to interrupt the write,
// after which a TLS connection is unusable.
func (p *pipe) joinParts() {
	p.joined = p.joined[:0]
	for _, part := range p.parts {
		p.joined = append(p.joined, part...)
	}
	clear(p.parts)
	p.parts = append(p.parts[:0], p.joined)
	if cap(p.joined) > maxKeptBytes {
		p.joined = nil // parts still holds it until it is written
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.batchWritten()
}

// write writes parts and clears them. An abandoned call interrupts it; the unwritten rest
// of its blob is then copied, so that its caller may return.
func (p *pipe) write() error {
	defer clear(p.parts)
	p.bufs = p.parts
	for {
		_, err := p.bufs.WriteTo(p.conn)
		if err == nil || !errors.Is(err, os.ErrDeadlineExceeded) || !p.copyAbandoned() {
			return err
		}
	}
}

// copyAbandoned copies the unwritten rest of the blobs of abandoned calls and finishes
// those calls. It returns false if no abandoned call interrupted the write.
func (p *pipe) copyAbandoned() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.interrupted {
		return false
	}
	p.interrupted = false
	numWritten := len(p.parts) - len(p.bufs)
	for i, cl := range p.writing {
		if cl == nil || !cl.abandoned || cl.async != nil {
			continue
		}
		if at := 2*i + 1 - numWritten; at >= 0 {
			p.bufs[at] = slices.Clone(p.bufs[at])
		}
		p.writing[i] = nil
		p.blobWritten(cl)
	}
	return p.conn.SetWriteDeadline(deadlineAfter(2*p.timeout)) == nil
}

// batchWritten marks the blobs of all calls in writing as not read any longer. mu is held.
func (p *pipe) batchWritten() {
	for i, cl := range p.writing {
		if cl == nil {
			continue
		}
		p.writing[i] = nil
		p.blobWritten(cl)
	}
}

// blobWritten marks a call's blob as not read any longer. The call is done if it was
// answered or abandoned meanwhile. mu is held.
func (p *pipe) blobWritten(cl *call) {
	cl.blob, cl.state = nil, callSent
	if cl.async != nil {
		cl.async.releaseBlob()
	}
	switch {
	case cl.answered && !cl.abandoned:
		p.finish(cl, cl.err)
	case cl.abandoned:
		p.slots[cl.slot].call, cl.state = nil, callDone
		if cl.async == nil {
			cl.done <- struct{}{}
		}
	}
}
