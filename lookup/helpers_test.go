package lookup

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/netproto"
	"github.com/hitline/hitline/simd"
)

func TestMain(m *testing.M) {
	if err := simd.ForceFromEnv(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	// gnet keeps one pool of workers and its ticker for the whole process.
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*poolCommon).purgeStaleWorkers"),
		goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*poolCommon).ticktock"))
}

// patience bounds every wait of these tests.
const patience = 20 * time.Second

func startServer(t testing.TB, cfg ServiceConfig, limits Limits) *Server {
	t.Helper()
	return startLogging(t, cfg, limits, slog.New(slog.DiscardHandler))
}

func startLogging(t testing.TB, cfg ServiceConfig, limits Limits, logger *slog.Logger) *Server {
	t.Helper()
	service, err := NewService(cfg)
	require.NoError(t, err)
	server, err := NewServer(service, ServerConfig{
		Listen: []string{"tcp://127.0.0.1:0"}, Loops: 2, Limits: limits, Logger: logger,
	})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	require.NoError(t, server.Start(ctx))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		_ = server.Shutdown(ctx)
	})
	return server
}

// serveOne runs script on the first connection to the address that it returns.
func serveOne(t testing.TB, script func(conn net.Conn)) (addr string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		script(conn)
	}()
	t.Cleanup(func() { _ = ln.Close(); <-done })
	return ln.Addr().String()
}

// blocks16 is a pool of one full-attention group of 16 tokens on one rank.
var blocks16 = ServiceConfig{Pool: coordinator.Pool{HashBlockSize: 16}}

func dialTest(t testing.TB, s *Server) *Client {
	t.Helper()
	c, err := Dial(context.Background(), s.Addrs()[0], WithTimeout(patience))
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// peer speaks bytes to a server.
type peer struct {
	net.Conn
	in []byte
}

func dialPeer(t testing.TB, s *Server) *peer {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.Addrs()[0], "tcp://"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	return &peer{Conn: conn}
}

// ask sends a message and returns the frames of the next one that comes.
func (p *peer) ask(t testing.TB, frames ...[]byte) [][]byte {
	t.Helper()
	_, err := p.Write(encode(frames...))
	require.NoError(t, err)
	return p.next(t)
}

func encode(frames ...[]byte) []byte {
	var b []byte
	for i, f := range frames {
		b = netproto.AppendFrame(b, f, i < len(frames)-1)
	}
	return b
}

// next returns the frames of the next message.
func (p *peer) next(t testing.TB) [][]byte {
	t.Helper()
	buf := make([]byte, 64<<10)
	for {
		if frames, used, err := netproto.ParseMessage(p.in, netproto.Limits{}, nil); err == nil {
			for i := range frames {
				frames[i] = bytes.Clone(frames[i])
				if frames[i] == nil {
					frames[i] = []byte{}
				}
			}
			p.in = p.in[used:]
			return frames
		}
		n, err := p.Read(buf)
		require.NoError(t, err)
		p.in = append(p.in, buf[:n]...)
	}
}

// chain returns n hashes of a chain that begins with seed.
func chain(seed string, n, hashLen int) []byte {
	var b []byte
	prev := sha256.Sum256([]byte(seed))
	for i := range n {
		prev = sha256.Sum256(binary.BigEndian.AppendUint32(prev[:], uint32(i)))
		b = append(b, append(prev[:], prev[:]...)[:hashLen]...)
	}
	return b
}

func statOf(t testing.TB, c *Client) (st Stat) {
	t.Helper()
	raw, err := c.Stat(context.Background())
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, &st))
	return st
}
