package zmtp

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/storetest"
)

// publisher is a PUB or XPUB, or an XPUB behind an XSUB that forwards. It sends numbered
// messages of three frames when it is told to: a line of its stdin is a number of messages and
// the size of their payload.
const publisher = `
import sys, threading, zmq
how, endpoint, *options = sys.argv[1:]
context = zmq.Context()
out = s = context.socket(zmq.PUB if how in ("bind", "connect") else zmq.XPUB)
if how == "forward":
    s = context.socket(zmq.PUB)
    s.bind("inproc://engine")
    xsub = context.socket(zmq.XSUB)
    xsub.setsockopt(zmq.RCVHWM, 0)
    xsub.connect("inproc://engine")
for socket in (s, out):
    socket.setsockopt(zmq.SNDHWM, 0)
for option in options:
    name, value = option.split("=")
    out.setsockopt(getattr(zmq, name), int(value))
out.connect(endpoint) if how == "connect" else out.bind(endpoint)
if how == "forward":
    threading.Thread(target=zmq.proxy, args=(xsub, out), daemon=True).start()
print(out.getsockopt(zmq.LAST_ENDPOINT).decode().rstrip("\0"), flush=True)
n = 0
for line in sys.stdin:
    count, size = map(int, line.split())
    payload = bytes(size)
    for _ in range(count):
        s.send_multipart([b"topic", n.to_bytes(8, "big"), payload])
        n += 1
`

// process is a Python that runs publisher.
type process struct {
	t        *testing.T
	cmd      *exec.Cmd
	endpoint string
	stdin    io.Writer
}

func startPublisher(t *testing.T, args ...string) *process {
	t.Helper()
	cmd := exec.Command(storetest.PyzmqPython(t), append([]string{"-c", publisher}, args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	p := &process{t: t, cmd: cmd, stdin: in}
	t.Cleanup(p.kill)
	p.endpoint, err = bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	p.endpoint = strings.TrimSpace(p.endpoint)
	return p
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

func (p *process) signal(s syscall.Signal) { require.NoError(p.t, p.cmd.Process.Signal(s)) }

func (p *process) send(n, size int) {
	_, err := fmt.Fprintln(p.stdin, n, size)
	require.NoError(p.t, err)
}

var sub = Config{SocketType: SUB, MaxMessage: 64 << 20, Timeout: 10 * time.Second}

func dial(t *testing.T, endpoint string, cfg Config) *Conn {
	t.Helper()
	network, address, err := DialAddress(endpoint)
	require.NoError(t, err)
	c, err := Dial(context.Background(), network, address, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// follow subscribes, and has p send messages until one arrives, as a subscription takes effect
// when the publisher reads it. It returns the next number behind all that were sent.
func follow(t *testing.T, p *process, c *Conn) (next uint64) {
	t.Helper()
	require.NoError(t, c.Subscribe("top"))
	for range 1000 {
		p.send(1, 10)
		frames, err := c.ReceiveWithin(20 * time.Millisecond)
		if err == ErrNoMessage {
			continue
		}
		require.NoError(t, err)
		p.send(1, 11) // is received behind all others
		for len(frames[2]) != 11 {
			frames, err = c.Receive()
			require.NoError(t, err)
		}
		return binary.BigEndian.Uint64(frames[1]) + 1
	}
	t.Fatal("nothing arrived")
	return 0
}

// receives receives n messages of a size, numbered from seq on, and returns the next number.
func receives(t *testing.T, c *Conn, seq uint64, n, size int) uint64 {
	t.Helper()
	for range n {
		frames, err := c.Receive()
		require.NoError(t, err)
		require.Len(t, frames, 3)
		require.Equal(t, "topic", string(frames[0]))
		require.Equal(t, seq, binary.BigEndian.Uint64(frames[1]))
		require.Len(t, frames[2], size)
		seq++
	}
	return seq
}

// startAndDial starts a publisher and connects to it, or has it connect to us.
func startAndDial(t *testing.T, how, endpoint string, cfg Config, options ...string) (*process, *Conn) {
	t.Helper()
	if how != "connect" {
		p := startPublisher(t, append([]string{how, endpoint}, options...)...)
		return p, dial(t, p.endpoint, cfg)
	}
	network, address, err := ListenAddress(endpoint)
	require.NoError(t, err)
	l, err := net.Listen(network, address)
	require.NoError(t, err)
	defer l.Close()
	p := startPublisher(t, append([]string{how, "tcp://" + l.Addr().String()}, options...)...)
	conn, err := l.Accept()
	require.NoError(t, err)
	c, err := Accept(context.Background(), conn, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return p, c
}

func TestPublishers(t *testing.T) {
	t.Parallel()
	const tcp = "tcp://127.0.0.1:*"
	for name, c := range map[string]struct {
		how, endpoint string
		options       []string
	}{
		"PUB":           {"bind", tcp, nil},
		"PUB, IPv6":     {"bind", "tcp://[::1]:*", []string{"IPV6=1"}},
		"XPUB":          {"xpub", tcp, nil},
		"forwarder":     {"forward", tcp, nil},
		"PUB, connects": {"connect", tcp, nil},
		"XPUB, IPC":     {"xpub", "ipc://" + t.TempDir() + "/events", nil},
		"PUB, no file":  {"bind", fmt.Sprintf("ipc://@hitline-test-%d", os.Getpid()), nil},
		// PINGs, also between the frames of a message.
		"PUB, heartbeat": {"bind", tcp, []string{"HEARTBEAT_IVL=1", "HEARTBEAT_TIMEOUT=20000"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, conn := startAndDial(t, c.how, c.endpoint, sub, c.options...)
			require.EqualValues(t, 1, conn.minor)
			seq := follow(t, p, conn)
			p.send(5000, 100)
			p.send(3, 20<<20)
			p.send(2000, 5000)
			seq = receives(t, conn, seq, 5000, 100)
			seq = receives(t, conn, seq, 3, 20<<20)
			receives(t, conn, seq, 2000, 5000)
		})
	}
}

// A libzmq that sends PINGs is answered, and closes nothing. One that is silent answers ours.
func TestHeartbeats(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		how     string
		timeout time.Duration // of ours
		options []string
	}{
		"theirs": {"bind", 20 * time.Second, []string{"HEARTBEAT_IVL=50", "HEARTBEAT_TIMEOUT=2000", "HEARTBEAT_TTL=2000"}},
		"ours":   {"connect", 3 * time.Second, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, conn := startAndDial(t, c.how, "tcp://127.0.0.1:*", Config{SocketType: SUB, MaxMessage: 1 << 20, Timeout: c.timeout}, c.options...)
			seq := follow(t, p, conn)
			_, err := conn.ReceiveWithin(4 * time.Second)
			require.Equal(t, ErrNoMessage, err)
			p.send(1, 100)
			receives(t, conn, seq, 1, 100)
		})
	}
}

// A publisher that stops without closing its connection is noticed, in the middle of messages too.
// One that ends is noticed at once. Each can be followed again.
func TestPublisherStops(t *testing.T) {
	t.Parallel()
	p, c := startAndDial(t, "bind", "tcp://127.0.0.1:*", Config{SocketType: SUB, MaxMessage: 64 << 20, Timeout: 3 * time.Second})
	seq := follow(t, p, c)
	p.send(10, 1<<20)
	receives(t, c, seq, 5, 1<<20)
	p.signal(syscall.SIGSTOP)
	err := error(nil)
	for err == nil {
		_, err = c.Receive()
	}
	require.ErrorIs(t, err, ErrTimeout)
	_, err = Dial(context.Background(), "tcp", strings.TrimPrefix(p.endpoint, "tcp://"), Config{SocketType: SUB, Timeout: time.Second})
	require.ErrorIs(t, err, ErrTimeout, "the kernel accepts for it")
	p.signal(syscall.SIGCONT)
	c = dial(t, p.endpoint, sub)
	follow(t, p, c)

	p.kill()
	_, err = c.Receive()
	require.ErrorIs(t, err, io.EOF)
	p = startPublisher(t, "bind", p.endpoint)
	follow(t, p, dial(t, p.endpoint, sub))
}

func TestPublisherRefuses(t *testing.T) {
	p := startPublisher(t, "bind", "tcp://127.0.0.1:*")
	address := strings.TrimPrefix(p.endpoint, "tcp://")
	_, err := Dial(context.Background(), "tcp", address, Config{SocketType: DEALER, Timeout: 10 * time.Second})
	require.Error(t, err, "a PUB talks to no DEALER")

	p = startPublisher(t, "bind", "tcp://127.0.0.1:*", "PLAIN_SERVER=1")
	_, err = Dial(context.Background(), "tcp", strings.TrimPrefix(p.endpoint, "tcp://"), sub)
	require.Error(t, err)
	require.True(t, errors.Is(err, ErrProtocol) || errors.Is(err, io.ErrUnexpectedEOF), "%v", err)
}
