package zmtp

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/storetest"
)

// publisher is a PUB or XPUB of libzmq. It sends numbered messages of three frames when it is told
// to: a line of its stdin is a number of messages and the size of their payload.
const publisher = `
import sys, zmq
kind, endpoint, *options = sys.argv[1:]
s = zmq.Context().socket(getattr(zmq, kind))
for option in ["SNDHWM=0"] + options:
    name, value = option.split("=")
    s.setsockopt(getattr(zmq, name), int(value))
s.bind(endpoint)
print(s.getsockopt(zmq.LAST_ENDPOINT).decode().rstrip("\0"), flush=True)
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
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	p.endpoint = strings.TrimSpace(line)
	return p
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

func (p *process) send(n, size int) {
	_, err := fmt.Fprintln(p.stdin, n, size)
	require.NoError(p.t, err)
}

// startAndDial starts a publisher and connects to it.
func startAndDial(t *testing.T, socketType string, timeout time.Duration, args ...string) (*process, *Conn, error) {
	t.Helper()
	p := startPublisher(t, args...)
	network, address, err := DialAddress(p.endpoint)
	require.NoError(t, err)
	c, err := Dial(context.Background(), network, address, Config{SocketType: socketType, MaxMessage: 64 << 20, Timeout: timeout})
	return p, c, err
}

// follow subscribes, and has p send messages until one arrives, as a subscription takes effect
// when the publisher reads it. It returns the next number behind all that were sent.
func follow(t *testing.T, p *process, c *Conn) (next uint64) {
	t.Helper()
	require.NoError(t, c.Subscribe("top"))
	err := ErrNoMessage
	for err == ErrNoMessage {
		p.send(1, 10)
		_, err = c.ReceiveWithin(20 * time.Millisecond)
	}
	require.NoError(t, err)
	p.send(1, 11) // is received behind all others
	for {
		frames, err := c.Receive()
		require.NoError(t, err)
		if len(frames[2]) == 11 {
			return binary.BigEndian.Uint64(frames[1]) + 1
		}
	}
}

// receives has p send n messages of a size, and receives them, numbered from seq on.
func receives(t *testing.T, p *process, c *Conn, seq uint64, n, size int) (next uint64) {
	t.Helper()
	p.send(n, size)
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

const anyPort = "tcp://127.0.0.1:*"

// A libzmq that sends PINGs is answered, and closes nothing. One that is silent answers ours.
func TestPublishers(t *testing.T) {
	t.Parallel()
	const timeout, quiet = 20 * time.Second, 3 * time.Second // with quiet, the publisher is silent for longer
	for name, c := range map[string]struct {
		timeout time.Duration
		args    []string
	}{
		"PUB":                   {quiet, []string{"PUB", anyPort}},
		"PUB, PINGs":            {quiet, []string{"PUB", anyPort, "HEARTBEAT_IVL=50", "HEARTBEAT_TIMEOUT=2000", "HEARTBEAT_TTL=2000"}},
		"PUB, PINGs in between": {timeout, []string{"PUB", anyPort, "HEARTBEAT_IVL=1", "HEARTBEAT_TIMEOUT=20000"}}, // of a message's frames
		"PUB, IPv6":             {timeout, []string{"PUB", "tcp://[::1]:*", "IPV6=1"}},
		"PUB, no file":          {timeout, []string{"PUB", fmt.Sprintf("ipc://@hitline-test-%d", os.Getpid())}},
		"XPUB, IPC":             {timeout, []string{"XPUB", "ipc://" + t.TempDir() + "/events"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, conn, err := startAndDial(t, SUB, c.timeout, c.args...)
			require.NoError(t, err)
			defer conn.Close()
			require.EqualValues(t, 1, conn.minor)
			seq := follow(t, p, conn)
			if c.timeout == quiet {
				_, err := conn.ReceiveWithin(quiet + time.Second)
				require.Equal(t, ErrNoMessage, err)
			} else {
				seq = receives(t, p, conn, seq, 5000, 100)
				seq = receives(t, p, conn, seq, 3, 20<<20)
			}
			receives(t, p, conn, seq, 200, 5000)
		})
	}
}

// A publisher that stops without closing its connection is noticed, in the middle of messages too.
// One that ends is noticed at once, and another in its place can be followed.
func TestPublisherStops(t *testing.T) {
	t.Parallel()
	p, c, err := startAndDial(t, SUB, 3*time.Second, "PUB", anyPort)
	require.NoError(t, err)
	follow(t, p, c)
	p.send(100, 1<<20)
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGSTOP))
	for err == nil {
		_, err = c.Receive()
	}
	require.ErrorIs(t, err, ErrTimeout)
	p.kill()

	p, c, err = startAndDial(t, SUB, 3*time.Second, "PUB", p.endpoint)
	require.NoError(t, err)
	follow(t, p, c)
	p.kill()
	_, err = c.Receive()
	require.ErrorIs(t, err, io.EOF)
}

// A PUB talks to no DEALER, and one that wants PLAIN to nobody without.
func TestPublisherRefuses(t *testing.T) {
	for option, socketType := range map[string]string{"LINGER=0": DEALER, "PLAIN_SERVER=1": SUB} {
		_, _, err := startAndDial(t, socketType, 10*time.Second, "PUB", anyPort, option)
		require.Error(t, err)
		require.NotErrorIs(t, err, ErrTimeout)
	}
}
