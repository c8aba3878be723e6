package zmtp

import (
	"bytes"
	"context"
	"encoding/binary"
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

// claim is the header of a frame that claims a size.
func claim(flags byte, size uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{flags | netproto.FlagLong}, size)
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

// inBubbles runs test for each case under synctest, where time passes only when all wait.
func inBubbles[C any](t *testing.T, cases map[string]C, test func(t *testing.T, c C)) {
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, c) })
		})
	}
}

// fakePeer is the other end of a connection in memory, under synctest. It collects what we send.
type fakePeer struct {
	net.Conn
	got        bytes.Buffer // from us
	goroutines sync.WaitGroup
}

// newFakePeer returns our end, and a peer. Its goroutines end with the test.
func newFakePeer(t *testing.T) (ours net.Conn, p *fakePeer) {
	ours, theirs := net.Pipe()
	p = &fakePeer{Conn: theirs}
	p.goroutines.Go(func() { _, _ = io.Copy(struct{ io.Writer }{&p.got}, theirs) })
	t.Cleanup(func() {
		_, _ = ours.Close(), theirs.Close()
		p.goroutines.Wait()
	})
	return ours, p
}

// received returns what we sent since the last call.
func (p *fakePeer) received() string {
	synctest.Wait()
	defer p.got.Reset()
	return p.got.String()
}

// send writes in the background, until our end is closed.
func (p *fakePeer) send(b []byte) { p.sendSlowly(0, max(len(b), 1), b) }

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

// opened returns a connection after its handshake with a PUB of ZMTP 3.minor.
func opened(t *testing.T, minor byte, cfg Config) (*Conn, *fakePeer) {
	ours, p := newFakePeer(t)
	p.send(join(greetingOf(3, minor, "NULL"), ready("PUB")))
	c, err := Accept(context.Background(), ours, cfg)
	require.NoError(t, err)
	p.received()
	return c, p
}
