// Package eventstest has a publisher of KV events in process, for tests of what follows one.
package eventstest

import (
	"bufio"
	"encoding/binary"
	"io"
	"maps"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"
)

// Publisher publishes batches as vLLM does, on a PUB socket and a replay socket that has all of them. It speaks
// as much ZMTP 3.0 as a Follower needs. Safe for concurrent use.
type Publisher struct {
	Endpoint, Replay string

	mu          sync.Mutex
	batches     [][]byte // by sequence number; nil: not there
	restarts    int
	subscribers map[net.Conn]bool
	replays     int // that were asked for
	mute        bool
	topic       string
	listeners   []net.Listener
	conns       map[net.Conn]bool
	running     sync.WaitGroup
	closed      bool
}

// New returns a publisher without batches. It is closed at the end of the test.
func New(t testing.TB) *Publisher {
	t.Helper()
	p, err := NewAt("127.0.0.1:0", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}

// NewAt is New at two addresses of TCP. The caller closes the publisher.
func NewAt(events, replay string) (p *Publisher, err error) {
	p = &Publisher{subscribers: map[net.Conn]bool{}, conns: map[net.Conn]bool{}}
	if p.Endpoint, err = p.listen(events, "PUB", p.subscribe); err == nil {
		p.Replay, err = p.listen(replay, "ROUTER", p.answer)
	}
	if err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// Close closes all connections and waits for them.
func (p *Publisher) Close() {
	p.mu.Lock()
	p.closed = true
	for _, l := range p.listeners {
		_ = l.Close()
	}
	p.mu.Unlock()
	p.Cut()
	p.running.Wait()
}

// Publish sends a batch of events, and keeps it for replays. lost says that no subscriber gets it.
func (p *Publisher) Publish(lost bool, events ...map[string]any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.publish(lost, Encode(float64(p.restarts<<20)+float64(len(p.batches)), events...))
}

// PublishPayload is Publish for a batch of any bytes; nil only uses its sequence number up.
func (p *Publisher) PublishPayload(lost bool, payload []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.publish(lost, payload)
}

func (p *Publisher) publish(lost bool, payload []byte) {
	seq := uint64(len(p.batches))
	p.batches = append(p.batches, payload)
	if !lost {
		p.sendAs(seq, payload)
	}
}

// SendAs sends a batch under any number, without keeping it.
func (p *Publisher) SendAs(seq uint64, payload []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sendAs(seq, payload)
}

func (p *Publisher) sendAs(seq uint64, payload []byte) {
	for c := range p.subscribers {
		if _, err := c.Write(Message([]byte(p.topic), binary.BigEndian.AppendUint64(nil, seq), payload)); err != nil {
			delete(p.subscribers, c)
			_ = c.Close()
		}
	}
}

// SendRaw sends any bytes to all subscribers, and returns how many there are. A subscriber that does not read holds up
// nothing else.
func (p *Publisher) SendRaw(b []byte) (subscribers int) {
	p.mu.Lock()
	list := slices.Collect(maps.Keys(p.subscribers))
	p.mu.Unlock()
	for _, c := range list {
		_ = c.SetWriteDeadline(time.Now().Add(10 * time.Second))
		if _, err := c.Write(b); err != nil {
			_ = c.Close()
		}
	}
	return len(list)
}

// Restart drops all batches, as a new engine behind the same endpoints: the next one has the number 0. The
// connections stay.
func (p *Publisher) Restart() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.batches, p.restarts = nil, p.restarts+1
}

// Cut closes all connections.
func (p *Publisher) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
	clear(p.subscribers)
}

// Mute says whether requests for replays stay without an answer.
func (p *Publisher) Mute(mute bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mute = mute
}

// SetTopic sets the topic of the next batches.
func (p *Publisher) SetTopic(topic string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.topic = topic
}

// NumReplays returns how many replays were asked for.
func (p *Publisher) NumReplays() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.replays
}

// HasSubscriber reports whether a subscriber would get the next batch.
func (p *Publisher) HasSubscriber() bool { return p.SendRaw(nil) > 0 }

// Stored returns an event that stores blocks of 16 tokens in group 0 of the GPU. parent may be nil.
func Stored(parent []byte, hashes ...[]byte) map[string]any {
	event := map[string]any{
		"type": "BlockStored", "block_hashes": bins(hashes), "parent_block_hash": nil, "token_ids": []any{}, "block_size": 16,
		"lora_id": nil, "medium": "GPU", "lora_name": nil, "group_idx": 0,
	}
	if parent != nil {
		event["parent_block_hash"] = parent
	}
	return event
}

// Removed returns an event that removes blocks of group 0 of the GPU.
func Removed(hashes ...[]byte) map[string]any {
	return map[string]any{"type": "BlockRemoved", "block_hashes": bins(hashes), "medium": "GPU", "group_idx": 0}
}

// Cleared returns an event that removes all blocks.
func Cleared() map[string]any { return map[string]any{"type": "AllBlocksCleared"} }

func bins(hashes [][]byte) (list []any) {
	for _, h := range hashes {
		list = append(list, h)
	}
	return list
}

// Encode returns the payload of a batch of events at a time.
func Encode(at float64, events ...map[string]any) []byte {
	b := msgp.AppendArrayHeader(nil, 3)
	b = msgp.AppendFloat64(b, at)
	b = msgp.AppendArrayHeader(b, uint32(len(events)))
	for _, e := range events {
		var err error
		if b, err = msgp.AppendMapStrIntf(b, e); err != nil {
			panic(err) // an event of this package
		}
	}
	return msgp.AppendInt(b, 0)
}

// listen serves connections of a socket type and returns the endpoint.
func (p *Publisher) listen(address, socketType string, serve func(net.Conn, *bufio.Reader)) (string, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return "", err
	}
	p.listeners = append(p.listeners, l)
	p.running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil || !p.addConn(c) {
				return
			}
			p.running.Go(func() { p.serve(c, socketType, serve) })
		}
	})
	return "tcp://" + l.Addr().String(), nil
}

// Connect connects to a subscriber that listens, and publishes there too.
func (p *Publisher) Connect(address string) (net.Conn, error) {
	c, err := net.Dial("tcp", address)
	if err == nil && p.addConn(c) {
		p.running.Go(func() { p.serve(c, "PUB", p.subscribe) })
	}
	return c, err
}

func (p *Publisher) serve(c net.Conn, socketType string, serve func(net.Conn, *bufio.Reader)) {
	defer p.removeConn(c)
	r := bufio.NewReader(c)
	if handshake(c, r, socketType) == nil {
		serve(c, r)
	}
}

func (p *Publisher) addConn(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = c.Close()
		return false
	}
	p.conns[c] = true
	return true
}

func (p *Publisher) removeConn(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
	delete(p.subscribers, c)
	_ = c.Close()
}

// subscribe serves a subscriber: its first message is a subscription.
func (p *Publisher) subscribe(c net.Conn, r *bufio.Reader) {
	for {
		if _, err := p.receive(c, r); err != nil {
			return
		}
		p.mu.Lock()
		p.subscribers[c] = true
		p.mu.Unlock()
	}
}

// answer serves the replay socket.
func (p *Publisher) answer(c net.Conn, r *bufio.Reader) {
	for {
		frames, err := p.receive(c, r)
		if err != nil || len(frames) != 2 || len(frames[1]) != 8 {
			return
		}
		p.mu.Lock()
		batches, mute := p.batches, p.mute
		p.replays++
		p.mu.Unlock()
		if mute {
			continue
		}
		for seq := binary.BigEndian.Uint64(frames[1]); seq < uint64(len(batches)); seq++ {
			if batches[seq] != nil {
				_, _ = c.Write(Message(nil, nil, binary.BigEndian.AppendUint64(nil, seq), batches[seq]))
			}
		}
		_, _ = c.Write(Message(nil, nil, []byte{255, 255, 255, 255, 255, 255, 255, 255}, nil))
	}
}

// handshake makes the handshake of ZMTP 3.0 with the mechanism NULL.
func handshake(c net.Conn, r *bufio.Reader, socketType string) error {
	greeting := make([]byte, 64)
	greeting[0], greeting[9], greeting[10] = 0xff, 0x7f, 3
	copy(greeting[12:], "NULL")
	ready := append([]byte("\x05READY\x0bSocket-Type\x00\x00\x00"), byte(len(socketType)))
	ready = append(ready, socketType...)
	if _, err := c.Write(append(greeting, frame(4, ready)...)); err != nil {
		return err
	}
	if _, err := io.ReadFull(r, greeting); err != nil {
		return err
	}
	_, _, err := readFrame(r) // READY
	return err
}

// receive returns the next message. It answers heartbeats. A command that is none ends a message of one frame.
func (p *Publisher) receive(c net.Conn, r *bufio.Reader) (frames [][]byte, err error) {
	for {
		flags, body, err := readFrame(r)
		switch {
		case err != nil:
			return nil, err
		case flags&4 != 0 && len(body) >= 7 && string(body[:5]) == "\x04PING":
			p.mu.Lock()
			_, _ = c.Write(frame(4, append([]byte("\x04PONG"), body[7:]...)))
			p.mu.Unlock()
			continue
		case flags&4 != 0 && len(body) >= 5 && string(body[:5]) == "\x04PONG":
			continue
		}
		if frames = append(frames, body); flags&1 == 0 {
			return frames, nil
		}
	}
}

func readFrame(r *bufio.Reader) (flags byte, body []byte, err error) {
	head := make([]byte, 9)
	if _, err := io.ReadFull(r, head[:2]); err != nil {
		return 0, nil, err
	}
	n := uint64(head[1])
	if head[0]&2 != 0 {
		if _, err := io.ReadFull(r, head[2:]); err != nil {
			return 0, nil, err
		}
		n = binary.BigEndian.Uint64(head[1:])
	}
	if n > 1<<20 {
		return 0, nil, io.ErrUnexpectedEOF
	}
	body = make([]byte, n)
	_, err = io.ReadFull(r, body)
	return head[0], body, err
}

// Message returns a message as it is on the wire.
func Message(frames ...[]byte) (out []byte) {
	for i, body := range frames {
		flags := byte(0)
		if i < len(frames)-1 {
			flags = 1
		}
		out = append(out, frame(flags, body)...)
	}
	return out
}

func frame(flags byte, body []byte) []byte {
	if len(body) > 255 {
		return append(binary.BigEndian.AppendUint64([]byte{flags | 2}, uint64(len(body))), body...)
	}
	return append([]byte{flags, byte(len(body))}, body...)
}
