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

	"github.com/hitline/hitline/netproto"
)

// greetingOf is the greeting of a peer.
func greetingOf(major, minor byte, mechanism string) []byte {
	g := []byte(netproto.Greeting)
	g[10], g[11] = major, minor
	copy(g[12:32], mechanism+string(make([]byte, 20)))
	return g
}

func command(name, data string) []byte { return netproto.AppendCommand(nil, name, data) }

func ready(socketType string) []byte {
	return command("READY", "\x0bSocket-Type\x00\x00\x00"+string(rune(len(socketType)))+socketType)
}

// peerSays returns the greeting and the READY of a peer.
func peerSays(socketType string) []byte { return join(greetingOf(3, 1, "NULL"), ready(socketType)) }

func messageOf(frames ...string) (b []byte) {
	for i, f := range frames {
		b = netproto.AppendFrame(b, []byte(f), i < len(frames)-1)
	}
	return b
}

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

func stringsOf(frames [][]byte) []string {
	s := make([]string, len(frames))
	for i, f := range frames {
		s[i] = string(f)
	}
	return s
}

// fakePeer is the other end of a connection in memory. It collects what we send.
type fakePeer struct {
	net.Conn
	mu         sync.Mutex
	got        bytes.Buffer // from us
	goroutines sync.WaitGroup
}

// newFakePeer returns our end, and a peer. Its goroutines end with the test. Under synctest
// time passes only when both ends wait.
func newFakePeer(t *testing.T) (ours net.Conn, p *fakePeer) {
	ours, theirs := net.Pipe()
	p = &fakePeer{Conn: theirs}
	p.goroutines.Go(func() {
		b := make([]byte, 100)
		for {
			n, err := theirs.Read(b)
			p.mu.Lock()
			p.got.Write(b[:n])
			p.mu.Unlock()
			if err != nil {
				return
			}
		}
	})
	t.Cleanup(func() {
		_, _ = ours.Close(), theirs.Close()
		p.goroutines.Wait()
	})
	return ours, p
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
	b := join(parts...)
	p.sendSlowly(0, max(len(b), 1), b)
}

// sendSlowly writes size bytes after every pause, until our end is closed.
func (p *fakePeer) sendSlowly(pause time.Duration, size int, b []byte) {
	p.goroutines.Go(func() {
		for chunk := range slices.Chunk(b, size) {
			time.Sleep(pause)
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

// script is a connection whose peer sends what is in it, and closes.
type script struct {
	net.Conn
	in    []byte
	sizes []byte // of the next reads, less 1, again and again
	reads int
}

func (s *script) Read(b []byte) (int, error) {
	if len(s.in) == 0 {
		return 0, io.EOF
	}
	n := len(s.in)
	if len(s.sizes) > 0 {
		n = min(n, 1+int(s.sizes[s.reads%len(s.sizes)]))
		s.reads++
	}
	n = copy(b, s.in[:n])
	s.in = s.in[n:]
	return n, nil
}

func (s *script) Write(b []byte) (int, error)      { return len(b), nil }
func (s *script) Close() error                     { return nil }
func (s *script) SetReadDeadline(time.Time) error  { return nil }
func (s *script) SetWriteDeadline(time.Time) error { return nil }
func (s *script) RemoteAddr() net.Addr             { return &net.TCPAddr{} }

// scripted returns a connection after its handshake with a PUB that then says b.
func scripted(t *testing.T, b, sizes []byte, cfg Config) *Conn {
	c, err := Accept(context.Background(), &script{in: join(peerSays("PUB"), b), sizes: sizes}, cfg)
	require.NoError(t, err)
	return c
}
