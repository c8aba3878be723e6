package events

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"
)

// A small publisher over ZMTP 3.1: a PUB and a ROUTER, enough for a Follower. It keeps all
// batches for replays.

var errPeer = errors.New("not what a subscriber sends")

const (
	zmtpMore    = 1
	zmtpLong    = 2
	zmtpCommand = 4
)

// zmtpPeer is the publisher's side of a connection.
type zmtpPeer struct {
	net.Conn
	in      *bufio.Reader
	writing sync.Mutex
}

func newZMTPPeer(conn net.Conn, socketType string) (*zmtpPeer, error) {
	p := &zmtpPeer{Conn: conn, in: bufio.NewReader(conn)}
	greeting := make([]byte, 64)
	greeting[0], greeting[9], greeting[10], greeting[11] = 0xFF, 0x7F, 3, 1
	copy(greeting[12:], "NULL")
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := conn.Write(greeting); err != nil {
		return nil, err
	}
	if _, err := io.ReadFull(p.in, greeting); err != nil {
		return nil, err
	}
	ready := append([]byte("\x05READY\x0bSocket-Type\x00\x00\x00"), byte(len(socketType)))
	if err := p.write(zmtpCommand, append(ready, socketType...)); err != nil {
		return nil, err
	}
	if flags, _, err := p.read(); err != nil || flags&zmtpCommand == 0 {
		return nil, errors.Join(errPeer, err)
	}
	return p, conn.SetDeadline(time.Time{})
}

// write writes one frame.
func (p *zmtpPeer) write(flags byte, body []byte) error {
	b := append([]byte{flags | zmtpLong}, binary.BigEndian.AppendUint64(nil, uint64(len(body)))...)
	_ = p.SetWriteDeadline(time.Now().Add(10 * time.Second))
	_, err := p.Write(append(b, body...))
	return err
}

// send writes one message.
func (p *zmtpPeer) send(frames ...[]byte) error {
	p.writing.Lock()
	defer p.writing.Unlock()
	for i, f := range frames {
		flags := byte(zmtpMore)
		if i == len(frames)-1 {
			flags = 0
		}
		if err := p.write(flags, f); err != nil {
			return err
		}
	}
	return nil
}

// read reads one frame.
func (p *zmtpPeer) read() (flags byte, body []byte, err error) {
	if flags, err = p.in.ReadByte(); err != nil {
		return 0, nil, err
	}
	var size uint64
	if flags&zmtpLong != 0 {
		err = binary.Read(p.in, binary.BigEndian, &size)
	} else {
		var n byte
		n, err = p.in.ReadByte()
		size = uint64(n)
	}
	if err != nil || size > 1<<16 {
		return 0, nil, errors.Join(errPeer, err)
	}
	body = make([]byte, size)
	_, err = io.ReadFull(p.in, body)
	return flags, body, err
}

// serve reads what the subscriber sends: it answers PINGs, and passes messages to message.
func (p *zmtpPeer) serve(subscribed func(), message func(frames [][]byte)) {
	var frames [][]byte
	for {
		flags, body, err := p.read()
		switch {
		case err != nil:
			return
		case flags&zmtpCommand == 0:
			frames = append(frames, body)
			if flags&zmtpMore == 0 {
				message(frames)
				frames = nil
			}
		case len(body) > 9 && string(body[1:10]) == "SUBSCRIBE" || len(body) == 10:
			subscribed()
		case len(body) > 5 && string(body[1:5]) == "PING":
			p.writing.Lock()
			_ = p.write(zmtpCommand, append([]byte("\x04PONG"), body[7:]...))
			p.writing.Unlock()
		}
	}
}

// testPublisher publishes batches.
type testPublisher struct {
	t       testing.TB
	pub     net.Listener
	router  net.Listener
	running sync.WaitGroup

	mu          sync.Mutex
	conns       map[net.Conn]struct{}
	subscribers map[*zmtpPeer]struct{}
	batches     [][]byte // by number; nil: not there
	replays     int
	topic       string
	mute        bool // the replay socket does not answer
	closed      bool
}

// startPublisher listens on loopback.
func startPublisher(t testing.TB) *testPublisher {
	t.Helper()
	p := &testPublisher{t: t, conns: make(map[net.Conn]struct{}), subscribers: make(map[*zmtpPeer]struct{})}
	p.pub, p.router = p.listen(), p.listen()
	p.accept(p.pub, "XPUB")
	p.accept(p.router, "ROUTER")
	t.Cleanup(p.close)
	return p
}

func (p *testPublisher) listen() net.Listener {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(p.t, err)
	return l
}

func (p *testPublisher) accept(l net.Listener, socketType string) {
	p.running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			p.running.Go(func() { p.serve(conn, socketType) })
		}
	})
}

// serve serves a connection until it breaks.
func (p *testPublisher) serve(conn net.Conn, socketType string) {
	defer conn.Close()
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return
	}
	p.conns[conn] = struct{}{}
	p.mu.Unlock()
	peer, err := newZMTPPeer(conn, socketType)
	if err == nil {
		peer.serve(func() { p.subscribe(peer) }, func(frames [][]byte) { p.replay(peer, frames) })
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, conn)
	delete(p.subscribers, peer)
}

func (p *testPublisher) subscribe(peer *zmtpPeer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.subscribers[peer] = struct{}{}
}

// replay answers a request.
func (p *testPublisher) replay(peer *zmtpPeer, frames [][]byte) {
	p.mu.Lock()
	batches, mute := p.batches, p.mute
	p.replays++
	p.mu.Unlock()
	if mute || len(frames) != 2 || len(frames[1]) != 8 {
		return
	}
	for seq := binary.BigEndian.Uint64(frames[1]); seq < uint64(len(batches)); seq++ {
		if batches[seq] != nil {
			_ = peer.send(nil, nil, binary.BigEndian.AppendUint64(nil, seq), batches[seq])
		}
	}
	_ = peer.send(nil, nil, binary.BigEndian.AppendUint64(nil, endOfReplay), nil)
}

// publish adds a batch to the replay buffer, and sends it unless lost is set.
func (p *testPublisher) publish(payload []byte, lost bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	seq := uint64(len(p.batches))
	p.batches = append(p.batches, payload)
	if !lost {
		p.sendLocked(seq, payload)
	}
}

// sendAs sends a batch under any number, without keeping it.
func (p *testPublisher) sendAs(seq uint64, payload []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sendLocked(seq, payload)
}

func (p *testPublisher) sendLocked(seq uint64, payload []byte) {
	for peer := range p.subscribers {
		if peer.send([]byte(p.topic), binary.BigEndian.AppendUint64(nil, seq), payload) != nil {
			delete(p.subscribers, peer)
		}
	}
}

// restart forgets all batches: the next has the number 0.
func (p *testPublisher) restart() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.batches = nil
}

func (p *testPublisher) setMute(mute bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mute = mute
}

// numReplays returns how many replays were asked for.
func (p *testPublisher) numReplays() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.replays
}

// awaitSubscriber waits until there is one.
func (p *testPublisher) awaitSubscriber() {
	p.t.Helper()
	eventually(p.t, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.subscribers) > 0
	})
}

// cut closes all connections.
func (p *testPublisher) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn := range p.conns {
		_ = conn.Close()
	}
	clear(p.subscribers)
}

func (p *testPublisher) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	_ = p.pub.Close()
	_ = p.router.Close()
	p.cut()
	p.running.Wait()
}

// config returns a Config that follows p.
func (p *testPublisher) config() Config {
	return Config{Name: p.t.Name(), Endpoint: "tcp://" + p.pub.Addr().String(), Replay: "tcp://" + p.router.Addr().String()}
}

// eventually waits until ok.
func eventually(t testing.TB, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, 30*time.Second, 2*time.Millisecond)
}

var batchClock struct {
	sync.Mutex
	now float64
}

// storedBatch is a batch that stores blocks in GPU, group 0.
func storedBatch(hashes ...uint64) []byte {
	return batchOf("BlockStored", hashesField(hashes...), parentField(false), mediumField("GPU"), groupField(0))
}

func removedBatch(hashes ...uint64) []byte {
	return batchOf("BlockRemoved", hashesField(hashes...), mediumField("GPU"), groupField(0))
}

func batchOf(kind string, fields ...func([]byte) []byte) []byte {
	var events simEvents
	events.event(kind, fields...)
	return events.batch()
}

// batch returns a batch of the events, with a time of its own.
func (e *simEvents) batch() []byte {
	batchClock.Lock()
	defer batchClock.Unlock()
	batchClock.now++
	b := msgp.AppendFloat64(msgp.AppendArrayHeader(nil, 3), batchClock.now)
	b = append(msgp.AppendArrayHeader(b, uint32(e.n)), e.b...)
	return msgp.AppendInt(b, 0)
}
