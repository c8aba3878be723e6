package events

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// proxy forwards connections of ZMTP. It can cut them, stall them, refuse new ones, and drop
// messages of publishers by their sequence number.
type proxy struct {
	listener net.Listener
	wg       sync.WaitGroup

	mu              sync.Mutex
	network, target string
	conns           map[net.Conn]struct{}
	closed          bool
	refusing        bool
	gate            chan struct{} // closed unless stalled
	from, to        uint64        // sequence numbers that are dropped: from <= n < to
	dropped         int
}

// newProxy returns a proxy that refuses connections until forwardTo.
func newProxy(t testing.TB) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{listener: l, conns: map[net.Conn]struct{}{}, gate: make(chan struct{})}
	close(p.gate)
	p.wg.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

// forwardTo forwards new connections to an address, which need not be listened on yet.
func (p *proxy) forwardTo(network, address string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.network, p.target = network, address
}

// endpoint returns where the proxy listens, as ZeroMQ writes it.
func (p *proxy) endpoint() string { return "tcp://" + p.listener.Addr().String() }

func (p *proxy) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.stall(false)
	_ = p.listener.Close()
	p.cut()
	p.wg.Wait()
}

// cut closes all connections.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
}

// refuse closes new connections.
func (p *proxy) refuse(refuse bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refusing = refuse
}

// stall keeps all messages, until it is called with false.
func (p *proxy) stall(stall bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.gate:
		if stall {
			p.gate = make(chan struct{})
		}
	default:
		if !stall {
			close(p.gate)
		}
	}
}

// drop drops the messages from <= n < to.
func (p *proxy) drop(from, to uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.from, p.to, p.dropped = from, to, 0
}

// numDropped returns how many messages were dropped since drop was called.
func (p *proxy) numDropped() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dropped
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		network, target := p.network, p.target
		p.mu.Unlock()
		server, err := net.Dial(network, target)
		if err != nil || !p.add(client, server) {
			_ = client.Close()
			if err == nil {
				_ = server.Close()
			}
			continue
		}
		p.wg.Go(func() { defer p.remove(client, server); p.forward(server, client) })
		p.wg.Go(func() { defer p.remove(client, server); p.forward(client, server) })
	}
}

// add registers connections, unless none is wanted.
func (p *proxy) add(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.refusing {
		return false
	}
	for _, c := range conns {
		p.conns[c] = struct{}{}
	}
	return true
}

// remove closes connections.
func (p *proxy) remove(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
		delete(p.conns, c)
	}
}

// greetingSize is the size of ZMTP 3's greeting.
const greetingSize = 64

// forward forwards what src sends: its greeting, in parts, and then whole messages.
func (p *proxy) forward(dst, src net.Conn) {
	if _, err := io.CopyN(dst, src, greetingSize); err != nil {
		return
	}
	r := bufio.NewReader(src)
	for {
		raw, frames, err := readMessage(r)
		if err != nil {
			return
		}
		p.mu.Lock()
		gate := p.gate
		p.mu.Unlock()
		<-gate
		if p.drops(frames) {
			continue
		}
		if _, err := dst.Write(raw); err != nil {
			return
		}
	}
}

// drops reports whether a message is to be dropped, and counts it.
func (p *proxy) drops(frames [][]byte) bool {
	if len(frames) != 3 || len(frames[1]) != 8 {
		return false
	}
	seq := binary.BigEndian.Uint64(frames[1])
	p.mu.Lock()
	defer p.mu.Unlock()
	if seq < p.from || seq >= p.to {
		return false
	}
	p.dropped++
	return true
}

// readMessage reads a message as it is on the wire, and its frames. A command has none.
func readMessage(r *bufio.Reader) (raw []byte, frames [][]byte, err error) {
	const more, long, command = 1, 2, 4
	for {
		flags, err := r.ReadByte()
		if err != nil {
			return nil, nil, err
		}
		raw = append(raw, flags)
		size := make([]byte, 8)
		if flags&long == 0 {
			size = size[:1]
		}
		if _, err := io.ReadFull(r, size); err != nil {
			return nil, nil, err
		}
		raw = append(raw, size...)
		var length uint64
		for _, b := range size {
			length = length<<8 | uint64(b)
		}
		body := make([]byte, length)
		if _, err := io.ReadFull(r, body); err != nil {
			return nil, nil, err
		}
		raw = append(raw, body...)
		if flags&command != 0 {
			return raw, nil, nil
		}
		frames = append(frames, body)
		if flags&more == 0 {
			return raw, frames, nil
		}
	}
}
