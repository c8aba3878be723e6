package lookuptest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/netproto"
)

// Peer is a connection on which a test sends and receives raw bytes.
type Peer struct {
	net.Conn
	In []byte // read and not returned yet
}

// DialPeer connects to a server at tcp://host:port or ipc:///path.
func DialPeer(t testing.TB, addr string) *Peer {
	t.Helper()
	network, at := "tcp", strings.TrimPrefix(addr, "tcp://")
	if path, isUnix := strings.CutPrefix(addr, "ipc://"); isUnix {
		network, at = "unix", path
	}
	conn, err := net.Dial(network, at)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(Patience)))
	return &Peer{Conn: conn}
}

// Ask sends a message and returns the frames of the next one that comes, within Patience.
func (p *Peer) Ask(t testing.TB, frames ...[]byte) [][]byte {
	t.Helper()
	require.NoError(t, p.SetDeadline(time.Now().Add(Patience)))
	_, err := p.Write(Encode(frames...))
	require.NoError(t, err)
	return p.Next(t)
}

// Encode returns the bytes of a message.
func Encode(frames ...[]byte) []byte {
	var b []byte
	for i, f := range frames {
		b = netproto.AppendFrame(b, f, i < len(frames)-1)
	}
	return b
}

// Next returns the frames of the next message.
func (p *Peer) Next(t testing.TB) [][]byte {
	t.Helper()
	buf := make([]byte, 64<<10)
	for {
		if frames, used, err := netproto.ParseMessage(p.In, netproto.Limits{}, nil); err == nil {
			for i := range frames {
				frames[i] = bytes.Clone(frames[i])
				if frames[i] == nil {
					frames[i] = []byte{}
				}
			}
			p.In = p.In[used:]
			return frames
		}
		n, err := p.Read(buf)
		require.NoError(t, err)
		p.In = append(p.In, buf[:n]...)
	}
}

// Reads reads exactly the bytes want.
func (p *Peer) Reads(t testing.TB, want []byte) {
	t.Helper()
	got := make([]byte, len(want))
	_, err := io.ReadFull(p, got)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

// Send sends encoded messages.
func (p *Peer) Send(t testing.TB, messages ...[]byte) {
	t.Helper()
	_, err := p.Write(slices.Concat(messages...))
	require.NoError(t, err)
}

// Reply returns the next message as its id and its first body frame in hex, and
// the text of a second one.
func (p *Peer) Reply(t testing.TB) (id, body, text string) {
	t.Helper()
	frames := p.Next(t)
	switch {
	case len(frames[0]) == 0:
		id, frames = "bare", frames[1:]
	case len(frames) > 2 && len(frames[1]) == 0:
		id, frames = string(frames[0][1:]), frames[2:]
	}
	if len(frames) > 1 {
		text = string(frames[1])
	}
	return id, fmt.Sprintf("%x", frames[0]), text
}

// Expect reads a reply for each of want and compares its id and first frame, as Reply
// returns them.
func (p *Peer) Expect(t testing.TB, want ...string) {
	t.Helper()
	for _, w := range want {
		id, body, text := p.Reply(t)
		require.Equal(t, w, strings.TrimSpace(id+" "+body), text)
	}
}

// ClosedWithin waits until the server closes the connection, for Patience at most.
func (p *Peer) ClosedWithin(t testing.TB) {
	t.Helper()
	_, err := io.Copy(io.Discard, p)
	if ne, ok := errors.AsType[net.Error](err); ok && ne.Timeout() {
		t.Fatal("the server did not close the connection")
	}
}
