package zmtp

import (
	"bufio"
	"context"
	"encoding/binary"
	"net"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/storetest"
)

// publisher sends numbered messages of three frames when it is told to: a line of its stdin is a
// number of messages and the size of their payload. It waits for its subscriber.
const publisher = `
import sys, time, zmq
how, endpoint, *options = sys.argv[1:]
context = zmq.Context()
kind = zmq.XPUB if how == "xpub" else zmq.PUB
s = context.socket(kind)
s.setsockopt(zmq.LINGER, 0)
s.setsockopt(zmq.SNDHWM, 0)
for option in options:
    name, value = option.split("=")
    s.setsockopt(getattr(zmq, name), int(value))
out = s
if how == "forward":
    import threading
    s.bind("inproc://in")
    xsub, xpub = context.socket(zmq.XSUB), context.socket(zmq.XPUB)
    xpub.setsockopt(zmq.SNDHWM, 0)
    xsub.connect("inproc://in")
    out = xpub
    for option in options:
        name, value = option.split("=")
        out.setsockopt(getattr(zmq, name), int(value))
if how == "connect":
    out.connect(endpoint)
else:
    out.bind(endpoint)
if how == "forward":
    threading.Thread(target=zmq.proxy, args=(xsub, xpub), daemon=True).start()
print(out.getsockopt(zmq.LAST_ENDPOINT).decode().rstrip("\0"), flush=True)
n = 0
for line in sys.stdin:
    count, size = map(int, line.split())
    payload = bytes(size)
    for _ in range(count):
        s.send_multipart([b"topic", n.to_bytes(8, "big"), payload])
        n += 1
`

type peer struct {
	t        *testing.T
	cmd      *exec.Cmd
	endpoint string
	in       interface{ Write([]byte) (int, error) }
}

func startPublisher(t *testing.T, args ...string) *peer {
	t.Helper()
	cmd := exec.Command(storetest.PyzmqPython(t), append([]string{"-c", publisher}, args...)...)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	lines := bufio.NewScanner(out)
	require.True(t, lines.Scan())
	return &peer{t, cmd, lines.Text(), in}
}

func (p *peer) send(n, size int) {
	_, err := p.in.Write([]byte(strconv.Itoa(n) + " " + strconv.Itoa(size) + "\n"))
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

// follow subscribes, and has p send until the first message arrives.
func follow(t *testing.T, p *peer, c *Conn) (next uint64) {
	require.NoError(t, c.Subscribe("top"))
	for range 1000 {
		p.send(1, 10)
		frames, err := c.ReceiveWithin(20 * time.Millisecond)
		if err == ErrNoMessage {
			continue
		}
		require.NoError(t, err)
		return binary.BigEndian.Uint64(frames[1]) + 1
	}
	t.Fatal("nothing arrived")
	return 0
}

func receives(t *testing.T, c *Conn, seq uint64, size int) {
	t.Helper()
	frames, err := c.Receive()
	require.NoError(t, err)
	require.Len(t, frames, 3)
	require.Equal(t, "topic", string(frames[0]))
	require.Equal(t, seq, binary.BigEndian.Uint64(frames[1]))
	require.Len(t, frames[2], size)
}

func TestSubscribe(t *testing.T) {
	for _, how := range []string{"bind", "xpub", "forward", "connect", "ipc", "abstract"} {
		t.Run(how, func(t *testing.T) {
			var p *peer
			var c *Conn
			switch how {
			case "connect":
				l, err := net.Listen("tcp", "127.0.0.1:0")
				require.NoError(t, err)
				defer l.Close()
				p = startPublisher(t, how, "tcp://"+l.Addr().String())
				conn, err := l.Accept()
				require.NoError(t, err)
				c, err = Accept(context.Background(), conn, sub)
				require.NoError(t, err)
				defer c.Close()
			case "ipc":
				p = startPublisher(t, "bind", "ipc://"+t.TempDir()+"/events")
				c = dial(t, p.endpoint, sub)
			case "abstract":
				p = startPublisher(t, "bind", "ipc://@hitline-"+strconv.FormatInt(time.Now().UnixNano(), 36))
				c = dial(t, p.endpoint, sub)
			default:
				p = startPublisher(t, how, "tcp://127.0.0.1:*")
				c = dial(t, p.endpoint, sub)
			}
			seq := follow(t, p, c)
			p.send(5000, 100)
			p.send(3, 20<<20)
			p.send(2000, 5000)
			for i := range 7003 {
				// Those that were sent for the first message come first.
				size := 100
				if i >= 5003 {
					size = 5000
				} else if i >= 5000 {
					size = 20 << 20
				}
				if i == 0 {
					for {
						frames, err := c.Receive()
						require.NoError(t, err)
						require.Equal(t, seq, binary.BigEndian.Uint64(frames[1]))
						seq++
						if len(frames[2]) == 100 {
							break
						}
					}
					continue
				}
				receives(t, c, seq, size)
				seq++
			}
		})
	}
}
