package client

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hitline/hitline/internal/certtest"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/netproto"
)

// noLeaks fails the test if it leaves a goroutine running, after all its other cleanup.
func noLeaks(t testing.TB) {
	opts := append([]goleak.Option{goleak.IgnoreCurrent()}, lookuptest.EngineLeaks...)
	t.Cleanup(func() { noGoroutines(t, opts...) })
}

// noGoroutines waits until only the goroutines that the options ignore run.
func noGoroutines(t testing.TB, opts ...goleak.Option) {
	t.Helper()
	for end := time.Now().Add(lookuptest.Patience); goleak.Find(opts...) != nil && time.Now().Before(end); { // it waits itself
	}
	goleak.VerifyNone(t, opts...)
}

// fakeServer answers a lookup with its number of tokens and any other request with
// 01, on connections of its own making that may be cut at any byte.
type fakeServer struct {
	// pipes has connections made by net.Pipe, which live in a bubble of synctest;
	// otherwise they are socket pairs.
	pipes bool
	// secure has TLS over the connections.
	secure bool
	// budget, if set, returns how many bytes, both ways together, pass a new
	// connection before it is cut, less than 0 for no end.
	budget func() int
	// answer, if set, decides when and how a request is answered: it sends replies
	// itself. It runs on the connection's goroutine.
	answer func(r *fakeRequest)
	// refuse, if set, fails an attempt to connect.
	refuse func() error
	// limits are told in the reply to the ping of the setup, unless they are zero.
	limits api.Limits
	// showSetup gives the ping of the setup to answer, too.
	showSetup bool

	dials, cuts atomic.Int64
	all         sync.WaitGroup
}

// fakeRequest is a request as a fakeServer has read it.
type fakeRequest struct {
	envelope  []byte
	tag       string
	numTokens uint32
	frames    [][]byte
	conn      *fakeConn
}

// reply sends the answer, from any goroutine.
func (r *fakeRequest) reply() {
	if r.tag == "lookup" {
		r.conn.send(netproto.AppendHit(nil, r.envelope, r.numTokens))
		return
	}
	if r.tag == "ping" {
		r.replyPing(r.conn.server.limits)
		return
	}
	r.conn.send(netproto.AppendDone(nil, r.envelope, nil))
}

// replyPing tells limits.
func (r *fakeRequest) replyPing(limits api.Limits) {
	doc, _ := json.Marshal(api.Instance{Limits: limits})
	r.conn.send(netproto.AppendDone(nil, r.envelope, netproto.AppendFrame(nil, doc, false)))
}

// fakeConn is the server's end.
type fakeConn struct {
	net.Conn
	server *fakeServer
	pinged bool // the ping of the setup has come
	left   int  // of the budget, while more than 0; less than 0 for no end
	mu     sync.Mutex
	more   sync.Cond
	out    []byte
	over   bool
}

func (f *fakeServer) dialer() *dialer {
	d := dialerOf(func(context.Context) (net.Conn, error) {
		f.dials.Add(1)
		if f.refuse != nil {
			if err := f.refuse(); err != nil {
				return nil, err
			}
		}
		return f.connect()
	})
	d.pause = 10 * time.Microsecond
	d.pauses.InitialInterval, d.pauses.MaxInterval = time.Microsecond, 10*time.Microsecond
	d.pauses.Reset()
	return d
}

// dialerOf returns a dialer of one server.
func dialerOf(open func(context.Context) (net.Conn, error)) *dialer {
	return newDialer(entry{open: open})
}

// interruptible makes a net.Pipe pass for a socket, whose interrupted writes can continue.
type interruptible struct{ net.Conn }

func (interruptible) SyscallConn() (syscall.RawConn, error) { return nil, errors.ErrUnsupported }

func (f *fakeServer) connect() (net.Conn, error) {
	here, there := net.Pipe()
	here = interruptible{here}
	if !f.pipes {
		var err error
		if here, there, err = socketPair(); err != nil {
			return nil, err
		}
	}
	if f.secure {
		f.start(tls.Server(there, testTLS.server))
		return handshaken(here)
	}
	f.start(there)
	return here, nil
}

// start serves a connection until its end.
func (f *fakeServer) start(nc net.Conn) {
	c := &fakeConn{Conn: nc, server: f, left: -1}
	c.more.L = &c.mu
	if f.budget != nil {
		c.left = f.budget()
	}
	f.all.Go(c.serve)
	f.all.Go(c.drain)
}

// testTLS are the configurations of both ends of the tests' TLS connections. The server's
// certificate is for server.test and 127.0.0.1.
var testTLS = func() (both struct{ server, client *tls.Config }) {
	ca := certtest.NewCA("tests")
	both.server = &tls.Config{Certificates: []tls.Certificate{ca.Leaf("server.test", "127.0.0.1")}}
	both.client = &tls.Config{RootCAs: ca.Pool(), ServerName: "server.test"}
	return both
}()

// handshaken returns the client's end of a TLS connection over nc.
func handshaken(nc net.Conn) (net.Conn, error) {
	return dialFunc(func(context.Context, string, string) (net.Conn, error) { return nc, nil }).
		overTLS(testTLS.client)(context.Background(), "", "")
}

func socketPair() (a, b net.Conn, err error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		return nil, nil, err
	}
	ends := [2]net.Conn{}
	for i, fd := range fds {
		syscall.CloseOnExec(fd)
		file := os.NewFile(uintptr(fd), "pair")
		ends[i], err = net.FileConn(file)
		file.Close()
		if err != nil {
			return nil, nil, err
		}
	}
	return ends[0], ends[1], nil
}

// spend takes up to n bytes from the budget. The connection is cut when it is
// spent.
func (c *fakeConn) spend(n int) (granted int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left < 0 {
		return n
	}
	granted = min(n, c.left)
	c.left -= granted
	return granted
}

// hangUp ends the connection.
func (c *fakeConn) hangUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	c.more.Broadcast()
	c.Close()
}

func (c *fakeConn) serve() {
	defer c.hangUp()
	var in []byte
	buf := make([]byte, 64<<10)
	for {
		n, err := c.Read(buf)
		if err != nil {
			return
		}
		granted := c.spend(n)
		in = append(in, buf[:granted]...)
		for {
			frames, used, err := netproto.ParseMessage(in, netproto.Limits{}, nil)
			if err != nil {
				break
			}
			in = append([]byte{}, in[used:]...)
			r := &fakeRequest{conn: c}
			if len(frames[0]) == 0 || frames[0][0] == 0 {
				r.envelope = netproto.AppendFrame(netproto.AppendFrame(nil, frames[0], true), nil, true)
				frames = frames[2:]
			}
			if r.tag = string(frames[0]); r.tag == "lookup" {
				r.numTokens = binary.BigEndian.Uint32(frames[1])
			}
			r.frames = frames
			isSetup := r.tag == "ping" && !c.pinged
			c.pinged = c.pinged || isSetup
			if isSetup && !c.server.showSetup {
				r.replyPing(c.server.limits)
			} else if c.server.answer != nil {
				c.server.answer(r)
			} else {
				r.reply()
			}
		}
		if granted < n {
			c.server.cuts.Add(1)
			return
		}
	}
}

func (c *fakeConn) send(reply []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out = append(c.out, reply...)
	c.more.Signal()
}

// drain writes what is sent, so that a client that writes and a server that does
// the same do not wait for each other.
func (c *fakeConn) drain() {
	for {
		c.mu.Lock()
		for len(c.out) == 0 && !c.over {
			c.more.Wait()
		}
		out, over := c.out, c.over
		c.out = nil
		c.mu.Unlock()
		if over {
			return
		}
		granted := c.spend(len(out))
		_, err := c.Write(out[:granted])
		if granted < len(out) {
			c.server.cuts.Add(1)
			c.hangUp()
		}
		if err != nil {
			return
		}
	}
}

// fakeClient is a client of f.
func fakeClient(t testing.TB, f *fakeServer, opts ...Option) *Client {
	t.Helper()
	t.Cleanup(f.all.Wait)
	c, err := dialClient(context.Background(), f.dialer(), newConfig(append([]Option{WithTimeout(lookuptest.Patience)}, opts...)))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// fakeAsync is an asynchronous client of f.
func fakeAsync(t testing.TB, f *fakeServer, opts ...Option) *AsyncClient {
	t.Helper()
	return fakeClient(t, f, opts...).Async()
}

func (a *AsyncClient) reset(ctx context.Context) error { return (&Client{a.transport}).Reset(ctx) }

// lazyClient is a client that is not connected yet.
func lazyClient(t testing.TB, d *dialer, timeout time.Duration) *Client {
	c := &Client{newTransport(d, timeout)}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// ping makes a round trip.
func ping(c *Client) error {
	_, err := c.Ping(background)
	return err
}

// eachKind runs a test over sockets and over TLS.
func eachKind(t *testing.T, run func(t *testing.T, secure bool)) {
	t.Run("socket", func(t *testing.T) { run(t, false) })
	t.Run("TLS", func(t *testing.T) { run(t, true) })
}

// scaled makes a count smaller where tests are to be short or slow.
func scaled(n int) int {
	if testing.Short() || lookuptest.Race {
		n /= 10
	}
	return max(n, 1)
}

// someBytes returns up to n bytes.
func someBytes(rng *rand.Rand, n int) []byte { return make([]byte, rng.IntN(n+1)) }
