package floor

import (
	"bytes"
	"fmt"
	"time"

	"github.com/hitline/hitline/bench/measure"

	"golang.org/x/sys/unix"

	"github.com/hitline/hitline/bench/wire"
)

// peer asks one server for the requests of a workload, one after the other. Not
// safe for concurrent use.
type peer struct {
	name   string
	socket wire.Socket
	load   *chainSet
	order  []int
	asked  int // number of the next request
	judged int // number of the next answer
	wrong  int

	size    int              // of an answer
	prefix  []byte           // what every answer begins with
	answer  func(int) []byte // the right one for a chain
	replies []byte           // read and not yet judged
	buffer  []byte           // backing of replies
	vector  []unix.Iovec     // of a burst of requests; reused
}

// floorPeer expects 4 zero bytes for everything.
func floorPeer(s wire.Socket, w *chainSet, order []int) *peer {
	zeros := make([]byte, floorReply)
	return newPeer("floor server", s, w, order, floorReply, zeros, func(int) []byte { return zeros })
}

// hitlinePeer begins half-way, so that no request is still in a cache because the
// floor server has just been asked the same.
func hitlinePeer(s wire.Socket, w *chainSet, order []int) *peer {
	p := newPeer("hitline", s, w, order, replySize, w.answers[:replySize-4], w.answer)
	p.asked = len(order) / 2
	p.judged = p.asked
	return p
}

func newPeer(name string, s wire.Socket, w *chainSet, order []int, size int, prefix []byte, answer func(int) []byte) *peer {
	return &peer{
		name: name, socket: s, load: w, order: order, size: size, prefix: prefix, answer: answer,
		buffer: make([]byte, size*MaxPipeline), vector: make([]unix.Iovec, MaxPipeline),
	}
}

// roundTrip asks for the next request and returns how long the answer took.
func (p *peer) roundTrip() (time.Duration, error) {
	request := p.load.request(p.order[p.asked%len(p.order)])
	p.asked++
	start := time.Now()
	_, err := p.socket.Write(request)
	for err == nil && len(p.replies) < p.size {
		err = p.read()
	}
	took := time.Since(start)
	if err != nil {
		return 0, p.failed(err)
	}
	return took, p.judge()
}

// stream asks for the next n requests, depth of them under way, and returns how
// long it took.
func (p *peer) stream(n, depth int) (time.Duration, error) {
	start := time.Now()
	for sent, done := 0, 0; done < n; {
		burst := min(depth-(sent-done), n-sent)
		if err := p.send(burst); err != nil {
			return 0, p.failed(err)
		}
		sent += burst
		before := p.judged
		if err := p.read(); err != nil {
			return 0, p.failed(err)
		}
		if err := p.judge(); err != nil {
			return 0, err
		}
		done += p.judged - before
	}
	return time.Since(start), nil
}

// send writes the next n requests.
func (p *peer) send(n int) error {
	for i := range n {
		request := p.load.request(p.order[p.asked%len(p.order)])
		p.asked++
		p.vector[i].Base = &request[0]
		p.vector[i].SetLen(len(request))
	}
	return p.socket.WriteAll(p.vector[:n])
}

// read reads answers once, behind those that are not judged.
func (p *peer) read() error {
	have := len(p.replies)
	n, err := p.socket.Read(p.buffer[have:])
	if err != nil {
		return err
	}
	p.replies = p.buffer[:have+n]
	if !wire.StartsLike(p.replies, p.prefix) { // waiting for the rest of a refusal could be for ever
		return fmt.Errorf("%w: it begins with %x", measure.ErrAnswer, p.replies[:min(len(p.replies), 64)])
	}
	return nil
}

// judge checks the whole answers that have been read.
func (p *peer) judge() error {
	for len(p.replies) >= p.size {
		if p.judged == p.asked {
			return p.failed(fmt.Errorf("%w: it was not asked for", measure.ErrAnswer))
		}
		got := p.replies[:p.size]
		if !wire.StartsLike(got, p.prefix) {
			return p.failed(fmt.Errorf("%w: it begins with %x", measure.ErrAnswer, got))
		}
		if !bytes.Equal(got, p.answer(p.order[p.judged%len(p.order)])) {
			p.wrong++
		}
		p.judged++
		p.replies = p.replies[p.size:]
	}
	p.replies = p.buffer[:copy(p.buffer, p.replies)]
	return nil
}

// failed says which request met err; what is no bad answer is a lost connection.
func (p *peer) failed(err error) error {
	return fmt.Errorf("answer %d of %s: %w", p.judged+1, p.name, wire.Lost(err))
}
