package zmtp

import (
	"bytes"
	"context"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// greetingOf is the greeting of a peer.
func greetingOf(major, minor byte, mechanism string) []byte {
	g := bytes.Clone(ourGreeting)
	g[versionMajor], g[versionMinor] = major, minor
	copy(g[mechanismBegin:mechanismEnd], mechanism+string(make([]byte, 20)))
	return g
}

func ready(socketType string) []byte {
	return appendCommand(nil, commandReady, appendProperty(nil, propertySocketType, socketType))
}

// peerSays returns the greeting and the READY of a peer.
func peerSays(socketType string) []byte {
	return append(bytes.Clone(ourGreeting), ready(socketType)...)
}

func messageOf(frames ...string) (b []byte) {
	for i, f := range frames {
		b = appendFrame(b, []byte(f), i < len(frames)-1)
	}
	return b
}

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

// fakePeer is the other end of a connection in memory. It collects what we send.
type fakePeer struct {
	net.Conn
	mu  sync.Mutex
	got bytes.Buffer // from us

	gone       chan struct{} // closed when the test ends
	goroutines sync.WaitGroup
}

// newFakePeer returns our end, and a peer. Its goroutines end with the test. Under synctest
// time passes only when both ends wait.
func newFakePeer(t *testing.T) (ours net.Conn, p *fakePeer) {
	ours, theirs := net.Pipe()
	p = &fakePeer{Conn: theirs, gone: make(chan struct{})}
	p.goroutines.Go(func() { _, _ = io.Copy(collector{p}, theirs) })
	t.Cleanup(func() {
		close(p.gone)
		_, _ = ours.Close(), theirs.Close()
		p.goroutines.Wait()
	})
	return ours, p
}

// collector appends what we sent.
type collector struct{ p *fakePeer }

func (c collector) Write(b []byte) (int, error) {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	return c.p.got.Write(b)
}

// received returns what we sent since the last call.
func (p *fakePeer) received() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.got.Reset()
	return p.got.String()
}

// send writes in the background, until our end is closed.
func (p *fakePeer) send(parts ...[]byte) {
	if b := join(parts...); len(b) > 0 {
		p.goroutines.Go(func() { _, _ = p.Write(b) })
	}
}

// closeLater closes the peer's end while ours waits: the deadline of a pipe that was closed before
// cannot be set.
func (p *fakePeer) closeLater() {
	p.goroutines.Go(func() {
		time.Sleep(time.Second)
		_ = p.Close()
	})
}

// sendSlowly writes size bytes after every pause, until our end is closed.
func (p *fakePeer) sendSlowly(pause time.Duration, size int, b []byte) {
	p.goroutines.Go(func() {
		for chunk := range slices.Chunk(b, size) {
			select {
			case <-time.After(pause):
			case <-p.gone:
				return
			}
			if _, err := p.Write(chunk); err != nil {
				return
			}
		}
	})
}

// small is a configuration whose limits are easily reached.
var small = Config{SocketType: SUB, MaxMessage: 1000, Timeout: 9 * time.Second}

// opened returns a connection after its handshake with a PUB of ZMTP 3.minor, under synctest.
func opened(t *testing.T, minor byte, cfg Config) (*Conn, *fakePeer) {
	ours, p := newFakePeer(t)
	p.send(greetingOf(3, minor, "NULL"), ready("PUB"))
	c, err := Accept(context.Background(), ours, cfg)
	require.NoError(t, err)
	synctest.Wait()
	p.received()
	return c, p
}

// script is a connection whose peer sends what is in it, cut into reads of the given sizes, and
// closes.
type script struct {
	net.Conn
	in    []byte
	sizes []byte // of the next reads, again and again; 0 is 256
	read  int
	out   bytes.Buffer
}

func (s *script) Read(b []byte) (int, error) {
	if len(s.in) == 0 {
		return 0, io.EOF
	}
	n := len(s.in)
	if len(s.sizes) > 0 {
		if n = int(s.sizes[s.read%len(s.sizes)]); n == 0 {
			n = 256
		}
		s.read++
	}
	n = copy(b, s.in[:min(n, len(s.in))])
	s.in = s.in[n:]
	return n, nil
}

func (s *script) Write(b []byte) (int, error)      { return s.out.Write(b) }
func (s *script) Close() error                     { return nil }
func (s *script) SetReadDeadline(time.Time) error  { return nil }
func (s *script) SetWriteDeadline(time.Time) error { return nil }
func (s *script) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
