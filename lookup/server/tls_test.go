package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/certtest"
	"github.com/hitline/hitline/internal/cpushare"
	"github.com/hitline/hitline/internal/logtest"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/client"
	"github.com/hitline/hitline/lookup/server/internal/sockets"
	"github.com/hitline/hitline/netproto"
)

// authority has signed the certificates of the tests' servers and clients.
var authority = certtest.NewCA("hitline tests")

// serverTLS is the TLS configuration of the tests' servers.
var serverTLS = &tls.Config{Certificates: []tls.Certificate{authority.Leaf("localhost", "127.0.0.1")}}

// clientTLS returns the configuration of a client, with certificates that it shows.
func clientTLS(certificates ...tls.Certificate) *tls.Config {
	return &tls.Config{ServerName: "localhost", RootCAs: authority.Pool(), Certificates: certificates}
}

// startTLSServer starts a server with a tls:// address. The log goes to the buffer.
func startTLSServer(t testing.TB, limits Limits, settings Settings) (*Server, *logtest.Buffer) {
	t.Helper()
	service, err := lookup.NewService(blocks16)
	require.NoError(t, err)
	log := &logtest.Buffer{}
	server, err := New(service, Config{
		Listeners: []Listener{{Address: "tls://127.0.0.1:0", Settings: settings}}, Loops: 2, Limits: limits,
		Logger: slog.New(slog.NewTextHandler(log, nil)),
	})
	require.NoError(t, err)
	startTest(t, server)
	return server, log
}

// A handshake computes on the processors of Config.CPU, and waits for one until its time is up.
func TestHandshakeWaitsForProcessor(t *testing.T) {
	service, err := lookup.NewService(blocks16)
	require.NoError(t, err)
	server, err := New(service, Config{
		Listeners: []Listener{{Address: "tls://127.0.0.1:0", Settings: Settings{TLS: serverTLS}}},
		Limits:    Limits{HandshakeTimeout: 200 * time.Millisecond}, CPU: cpushare.New(0),
	})
	require.NoError(t, err)
	startTest(t, server)
	conn, err := net.Dial("tcp", hostOf(server))
	require.NoError(t, err)
	defer conn.Close()
	require.Error(t, tls.Client(conn, &tls.Config{InsecureSkipVerify: true}).Handshake())
	lookuptest.Eventually(t, "it is closed", func() bool { return server.Stat().Closed["tls_handshake"] == 1 })
}

// hostOf returns host:port of the server's first address.
func hostOf(s *Server) string {
	_, host, _ := strings.Cut(s.Addrs()[0], "://")
	return host
}

// dialTLS connects a peer that speaks TLS.
func dialTLS(t testing.TB, s *Server, cfg *tls.Config) *lookuptest.Peer {
	t.Helper()
	tcp := lookuptest.DialPeer(t, hostOf(s))
	conn := tls.Client(tcp.Conn, cfg)
	require.NoError(t, conn.Handshake())
	return &lookuptest.Peer{Conn: conn}
}

// refusedTLS makes a handshake, and reads, until the server refuses it.
func refusedTLS(t testing.TB, s *Server, cfg *tls.Config) error {
	t.Helper()
	conn := tls.Client(lookuptest.DialPeer(t, hostOf(s)).Conn, cfg)
	_, err := conn.Read(make([]byte, 1))
	require.Error(t, err)
	require.NotErrorIs(t, err, io.EOF, "it was served")
	return err
}

func TestTLSServesLookups(t *testing.T) {
	server, _ := startTLSServer(t, Limits{}, Settings{TLS: serverTLS})
	require.True(t, strings.HasPrefix(server.Addrs()[0], "tls://127.0.0.1:"))
	c := dialTest(t, server, client.WithTLS(clientTLS()))
	const n = 20_000
	keys := coordinator.NewHashes(lookuptest.Chain("a", n, 32), 32)
	require.NoError(t, c.Store(context.Background(), coordinator.GroupRank{}, keys))
	for range 3 {
		hit, err := c.Lookup(context.Background(), 16*n, keys)
		require.NoError(t, err)
		require.EqualValues(t, 16*n, hit.Tokens)
	}
	require.EqualValues(t, 1, statOf(t, c).Connections)
}

// pings64 returns pings of 64 KiB and their replies.
func pings64(n int) (requests, replies []byte) {
	for i := range n {
		echo := bytes.Repeat([]byte{byte(i)}, netproto.MaxPing)
		requests = append(requests, lookuptest.Encode([]byte("ping"), echo)...)
		replies = append(replies, lookuptest.Encode([]byte{1}, echo)...)
	}
	return requests, replies
}

// Every byte of pipelined requests and replies arrives, in order, whatever the pieces.
func TestTLSEchoInPieces(t *testing.T) {
	server, _ := startTLSServer(t, Limits{MaxUnsent: 64 << 20}, Settings{TLS: serverTLS})
	requests, replies := pings64(100)
	for _, piece := range []int{1, 100, 16 << 10, 70_001, len(requests)} {
		send, want := requests, replies
		if piece == 1 {
			send, want = lookuptest.Encode([]byte("ping"), []byte("hello")), lookuptest.Encode([]byte{1}, []byte("hello"))
		} else if piece == 100 {
			send, want = pings64(2)
		}
		p := dialTLS(t, server, clientTLS())
		failed := make(chan error, 1)
		go func() {
			var err error
			for rest := send; len(rest) > 0 && err == nil; rest = rest[min(piece, len(rest)):] {
				_, err = p.Write(rest[:min(piece, len(rest))])
			}
			failed <- err
		}()
		p.Reads(t, want)
		require.NoError(t, <-failed)
		require.NoError(t, p.Close())
	}
	lookuptest.Eventually(t, "all gone", func() bool { return server.Stat().Connections == 0 })
}

// A peer that reads nothing is closed, for the reason of a plain one.
func TestTLSPeersThatNeverRead(t *testing.T) {
	t.Parallel() // it waits for a second or more
	requests, _ := pings64(400)
	for reason, limits := range map[closeReason]Limits{
		closedSlowReader:   {MaxUnsent: 1 << 20},
		closedWriteTimeout: {MaxUnsent: 64 << 20, MaxMemory: 256 << 20, WriteTimeout: 300 * time.Millisecond},
	} {
		server, _ := startTLSServer(t, limits, Settings{TLS: serverTLS})
		p := dialTLS(t, server, clientTLS())
		_, _ = p.Write(requests) // it may be closed meanwhile
		lookuptest.Eventually(t, "closed", func() bool { return server.peers.closed[reason].Load() == 1 })
		lookuptest.Eventually(t, "gone", func() bool { return server.Stat().Connections == 0 })
	}
}

// The end of a peer's bytes ends the session after all of them, however it comes.
func TestTLSEndOfPeer(t *testing.T) {
	t.Parallel() // it waits for a second or more
	for name, end := range map[string]func(c *tls.Conn){
		"close_notify": func(c *tls.Conn) { _ = c.CloseWrite() },
		"half-closed":  func(c *tls.Conn) { _ = c.NetConn().(*net.TCPConn).CloseWrite() },
		"reset":        func(c *tls.Conn) { _ = c.NetConn().(*net.TCPConn).SetLinger(0); _ = c.NetConn().Close() },
		"closed":       func(c *tls.Conn) { _ = c.Close() },
		"garbage":      func(c *tls.Conn) { _, _ = c.NetConn().Write([]byte("GET / HTTP/1.1\r\n\r\n")) },
	} {
		t.Run(name, func(t *testing.T) {
			server, _ := startTLSServer(t, Limits{}, Settings{TLS: serverTLS})
			p := dialTLS(t, server, clientTLS())
			require.Equal(t, [][]byte{{1}, {}}, p.Ask(t, []byte("ping"), nil))
			_, err := p.Write([]byte("\x00\x04pi")) // the middle of a request
			require.NoError(t, err)
			lookuptest.Eventually(t, "begun", func() bool { return server.conns.countBusy() == 1 })
			end(p.Conn.(*tls.Conn))
			lookuptest.Eventually(t, "counted", func() bool { return server.peers.closed[closedByPeer].Load() == 1 })
			lookuptest.Eventually(t, "gone", func() bool { return server.Stat().Connections == 0 })
		})
	}
}

// A peer whose session ends by its mistake has the replies before it, and then a close_notify,
// though it sends on.
func TestTLSRepliesBeforeTheEnd(t *testing.T) {
	server, _ := startTLSServer(t, Limits{}, Settings{TLS: serverTLS})
	requests, replies := pings64(1) // more might not be in the pair of sockets yet when the session ends
	p := dialNarrow(t, server)
	go func() {
		_, err := p.Write(slices.Concat(requests, []byte("\xff no request")))
		for err == nil {
			_, err = p.Write(make([]byte, 1000))
		}
	}()
	lookuptest.Eventually(t, "closed", func() bool { return server.peers.closed[closedFlags].Load() == 1 })
	p.Reads(t, replies)
	_, err := p.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	require.NoError(t, p.Close())
	lookuptest.Eventually(t, "gone", func() bool { return server.Stat().Connections == 0 })
	require.EqualValues(t, 1, server.peers.closed[closedFlags].Load())
}

// dialNarrow is dialTLS on a connection of which the kernel keeps a few KiB alone.
func dialNarrow(t testing.TB, s *Server) *lookuptest.Peer {
	t.Helper()
	dialer := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 4<<10) })
	}}
	conn, err := tls.DialWithDialer(&dialer, "tcp", hostOf(s), clientTLS())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.NetConn().Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(lookuptest.Patience)))
	lookuptest.Eventually(t, "served", func() bool { return s.conns.number() == 1 })
	require.NoError(t, s.someSession().conn.tls.SetWriteBuffer(4<<10))
	return &lookuptest.Peer{Conn: conn}
}

// A connection that is refused is counted, and its peer can tell why.
func TestTLSHandshakesThatFail(t *testing.T) {
	t.Parallel() // it waits for a second or more
	other := certtest.NewCA("other")
	mutual := serverTLS.Clone()
	mutual.ClientCAs = authority.Pool()
	mutual.ClientAuth = tls.NoClientCert // it does not count
	old := clientTLS()
	old.MaxVersion = tls.VersionTLS12
	for name, c := range map[string]struct {
		server *tls.Config
		client *tls.Config
		says   string
		logs   string
	}{
		"TLS 1.2":        {serverTLS, old, "protocol version", "unsupported versions"},
		"no certificate": {mutual, clientTLS(), "certificate required", "didn't provide a certificate"},
		"another CA":     {mutual, clientTLS(other.Leaf("a")), "unknown certificate authority", "unknown authority"},
		"expired":        {mutual, clientTLS(authority.LeafUntil(time.Now().Add(-time.Minute), "a")), "expired certificate", "expired"},
	} {
		server, log := startTLSServer(t, Limits{}, Settings{TLS: c.server})
		if cfg := c.client; len(cfg.Certificates) > 0 { // also one that the server does not ask for
			cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cfg.Certificates[0], nil }
		}
		require.ErrorContains(t, refusedTLS(t, server, c.client), c.says, name)
		lookuptest.Eventually(t, name, func() bool { return server.peers.closed[closedTLSHandshake].Load() == 1 })
		lookuptest.Eventually(t, "gone", func() bool { return server.Stat().Connections == 0 })
		require.Contains(t, log.String(), c.logs)
		require.Contains(t, log.String(), "reason=tls_handshake peer=127.0.0.1:")
		require.Zero(t, server.conns.number())
	}
}

// A certificate that a server without authorities has not verified counts for nothing.
func TestTLSUnverifiedCertificate(t *testing.T) {
	asks := serverTLS.Clone()
	asks.ClientAuth = tls.RequireAnyClientCert // it does not count
	server, _ := startTLSServer(t, Limits{}, Settings{TLS: asks})
	p := dialTLS(t, server, clientTLS())
	require.Equal(t, [][]byte{{1}, {}}, p.Ask(t, []byte("ping"), nil))
	require.NoError(t, p.Close())
	eventuallyConnections(t, server, 0)
	p = dialTLS(t, server, clientTLS(certtest.NewCA("other").Leaf("engine.example.com")))
	require.Equal(t, [][]byte{{1}, {}}, p.Ask(t, []byte("ping"), nil))
	require.Nil(t, server.someSession().certificates.Names())
}

func TestTLSHandshakeTimeout(t *testing.T) {
	t.Parallel() // it waits for a second or more
	server, log := startTLSServer(t, Limits{HandshakeTimeout: 200 * time.Millisecond}, Settings{TLS: serverTLS})
	p := lookuptest.DialPeer(t, hostOf(server))
	_, _ = p.Write([]byte{22, 3, 1, 2, 0, 1}) // the beginning of a ClientHello; it may be too late
	p.ClosedWithin(t)
	lookuptest.Eventually(t, "gone", func() bool { return server.Stat().Connections == 0 })
	require.EqualValues(t, 1, server.peers.closed[closedTLSHandshake].Load())
	require.Contains(t, log.String(), "limits.handshake_timeout (200ms)")
}

// eventuallyConnections waits until the server counts a number of connections.
func eventuallyConnections(t testing.TB, s *Server, want int64) {
	t.Helper()
	lookuptest.Eventually(t, "connections", func() bool { return s.Stat().Connections == want })
}

// The log tells those who mix up addresses with TLS and without.
func TestTLSMixedUp(t *testing.T) {
	server, log := startTLSServer(t, Limits{}, Settings{TLS: serverTLS})
	p := lookuptest.DialPeer(t, hostOf(server))
	_, err := p.Write(lookuptest.Encode([]byte("ping"), nil))
	require.NoError(t, err)
	p.ClosedWithin(t)
	lookuptest.Eventually(t, "logged", func() bool { return strings.Contains(log.String(), "must begin with tls://") })
	require.EqualValues(t, 1, server.peers.closed[closedTLSHandshake].Load())

	plainLog := &logtest.Buffer{}
	plain := startLogging(t, blocks16, Limits{}, slog.New(slog.NewTextHandler(plainLog, nil)))
	require.Error(t, tls.Client(lookuptest.DialPeer(t, hostOf(plain)).Conn, clientTLS()).Handshake())
	lookuptest.Eventually(t, "logged", func() bool { return strings.Contains(plainLog.String(), "this address has none") })
	require.EqualValues(t, 1, plain.peers.closed[closedFirstByte].Load())
}

// A probe of the port, which connects and closes, is no failed handshake.
func TestTLSProbe(t *testing.T) {
	server, log := startTLSServer(t, Limits{}, Settings{TLS: serverTLS})
	require.NoError(t, lookuptest.DialPeer(t, hostOf(server)).Close())
	lookuptest.Eventually(t, "counted", func() bool { return server.peers.closed[closedByPeer].Load() == 1 })
	require.Zero(t, server.peers.closed[closedTLSHandshake].Load())
	require.NotContains(t, log.String(), "level=WARN")
}

// Connections are counted from the accept on.
func TestTLSMaxConnections(t *testing.T) {
	server, _ := startTLSServer(t, Limits{MaxConnections: 2}, Settings{TLS: serverTLS})
	p := dialTLS(t, server, clientTLS())
	require.Equal(t, [][]byte{{1}, {}}, p.Ask(t, []byte("ping"), nil))
	silent := lookuptest.DialPeer(t, hostOf(server)) // before its handshake
	eventuallyConnections(t, server, 2)
	lookuptest.DialPeer(t, hostOf(server)).ClosedWithin(t)
	require.EqualValues(t, 1, server.peers.closed[closedMaxConnections].Load())
	require.NoError(t, silent.Close())
	eventuallyConnections(t, server, 1)
	require.Equal(t, [][]byte{{1}, {}}, dialTLS(t, server, clientTLS()).Ask(t, []byte("ping"), nil))
}

// Sessions are not resumed: a certificate is verified on each connection.
func TestTLSSessionsAreNotResumed(t *testing.T) {
	server, _ := startTLSServer(t, Limits{}, Settings{TLS: serverTLS})
	cfg := clientTLS()
	cfg.ClientSessionCache = tls.NewLRUClientSessionCache(4)
	for range 2 {
		p := dialTLS(t, server, cfg)
		require.Equal(t, [][]byte{{1}, {}}, p.Ask(t, []byte("ping"), nil))
		require.False(t, p.Conn.(*tls.Conn).ConnectionState().DidResume)
	}
}

// The settings that count are those of the time of the handshake, not of the accept.
func TestTLSSettingsOfTheHandshake(t *testing.T) {
	server, _ := startTLSServer(t, Limits{}, Settings{TLS: serverTLS})
	p := lookuptest.DialPeer(t, hostOf(server))
	eventuallyConnections(t, server, 1)
	renewed := authority.Leaf("localhost")
	require.NoError(t, server.SetListener(server.Addrs()[0], Settings{TLS: &tls.Config{Certificates: []tls.Certificate{renewed}}}))
	conn := tls.Client(p.Conn, clientTLS())
	require.NoError(t, conn.Handshake())
	require.Equal(t, renewed.Certificate[0], conn.ConnectionState().PeerCertificates[0].Raw)
}

// Shutdown answers requests that have begun, closes idle connections, and leaves no goroutine
// (TestMain checks that).
func TestTLSShutdown(t *testing.T) {
	server, _ := startTLSServer(t, Limits{HandshakeTimeout: time.Hour}, Settings{TLS: serverTLS})
	idle, busy := dialTLS(t, server, clientTLS()), dialTLS(t, server, clientTLS())
	silent := lookuptest.DialPeer(t, hostOf(server))
	require.Equal(t, [][]byte{{1}, {}}, idle.Ask(t, []byte("ping"), nil))
	busy.Send(t, []byte("\x00\x04pi"))
	lookuptest.Eventually(t, "begun", func() bool { return server.conns.countBusy() == 1 })
	eventuallyConnections(t, server, 3)
	down := make(chan error, 1)
	go func() { down <- server.Shutdown(context.Background()) }()
	silent.ClosedWithin(t)
	alert, err := io.ReadAll(idle.Conn.(*tls.Conn).NetConn())
	require.NoError(t, err)
	require.NotEmpty(t, alert, "a close_notify")
	busy.Send(t, []byte("ng"))
	require.Equal(t, []byte{1}, busy.Next(t)[0])
	require.NoError(t, <-down)
	require.Zero(t, server.Stat().Connections)
}

// Requests that have arrived when the server shuts down are answered, though no event loop has
// seen them.
func TestTLSShutdownAnswersWhatHasArrived(t *testing.T) {
	server, _ := startTLSServer(t, Limits{}, Settings{TLS: serverTLS})
	p := dialTLS(t, server, clientTLS())
	require.Equal(t, [][]byte{{1}, {}}, p.Ask(t, []byte("ping"), nil))
	held, release := make(chan struct{}), make(chan struct{})
	server.on(t, func() error { close(held); <-release; return nil })
	<-held
	p.Send(t, lookuptest.Encode([]byte("ping"), []byte("late")))
	lookuptest.Eventually(t, "arrived", func() bool { return server.conns.countUnread() == 1 })
	down := make(chan error, 1)
	go func() { down <- server.Shutdown(context.Background()) }()
	lookuptest.Eventually(t, "draining", server.isShuttingDown)
	close(release)
	require.Equal(t, [][]byte{{1}, []byte("late")}, p.Next(t))
	require.NoError(t, <-down)
}

// Shutdown waits until the replies of sessions that have ended are sent.
func TestTLSShutdownSendsReplies(t *testing.T) {
	server, _ := startTLSServer(t, Limits{}, Settings{TLS: serverTLS})
	p := dialNarrow(t, server)
	requests, replies := pings64(1)
	p.Send(t, requests)
	lookuptest.Eventually(t, "answered", func() bool { return server.someSession().inPair() > 0 && server.conns.countBusy() == 0 })
	down := make(chan error, 1)
	go func() { down <- server.Shutdown(context.Background()) }()
	lookuptest.Eventually(t, "no session", func() bool { return server.conns.number() == 0 })
	p.Reads(t, replies)
	require.NoError(t, <-down)
}

// inPair returns how many bytes of replies the peer's goroutine has not taken yet.
func (s *session) inPair() int64 { return sockets.Unacknowledged(s.conn.wire.Fd()) }

// At the end of its time Shutdown cuts off a peer that does not read, and says so.
func TestTLSShutdownDeadline(t *testing.T) {
	server, _ := startTLSServer(t, Limits{MaxUnsent: 64 << 20, MaxMemory: 256 << 20}, Settings{TLS: serverTLS})
	p := dialTLS(t, server, clientTLS())
	requests, _ := pings64(400)
	go func() { _, _ = p.Write(requests) }()
	lookuptest.Eventually(t, "unsent", func() bool { return server.heldBytes() > 1<<20 })
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, server.Shutdown(ctx), context.DeadlineExceeded)
	require.Zero(t, server.Stat().Connections)
}

// Two thousand idle connections hold no buffers: they take under 64 KiB each, of which one buffer
// would be all.
func TestTLSIdleConnections(t *testing.T) {
	measurable(t)
	const n = 2000
	requireFiles(t, 5*n)
	server := startChild(t, childConfig{Listen: []string{"tls://127.0.0.1:0"}, TLS: true})
	before := server.memory(t, "VmRSS")
	cfg := &tls.Config{InsecureSkipVerify: true}
	crowd := dialCrowd(t, strings.Replace(server.addr, "tls:", "tcp:", 1), n, func(conn net.Conn) error {
		return pingPong(tls.Client(conn, cfg))
	})
	grown := server.memory(t, "VmHWM") - before
	t.Logf("%d connections take %.1f MiB, %d bytes each", n, float64(grown)/mib, grown/n)
	require.Less(t, grown, n*readBuffer)
	crowd.close()
	server.ends(t)
}

// mutualTLS returns settings with client certificates of an authority.
func mutualTLS(ca *certtest.CA) Settings {
	cfg := serverTLS.Clone()
	cfg.ClientCAs = ca.Pool()
	return Settings{TLS: cfg}
}

// A connection ends with the certificate of its client.
func TestTLSCertificateExpires(t *testing.T) {
	t.Parallel() // it waits for a second or more
	server, _ := startTLSServer(t, Limits{}, mutualTLS(authority))
	certificate := authority.LeafUntil(time.Now().Add(time.Hour), "short")
	short := dialTLS(t, server, clientTLS(certificate))
	require.Equal(t, [][]byte{{1}, {}}, short.Ask(t, []byte("ping"), nil))
	expires := &server.someSession().conn.times.expires
	require.Equal(t, certificate.Leaf.NotAfter.UnixMicro(), expires.Load())
	long := dialTLS(t, server, clientTLS(authority.Leaf("long")))
	require.Equal(t, [][]byte{{1}, {}}, long.Ask(t, []byte("ping"), nil))
	expires.Store(1) // as if it had come: a real end could come before the first request
	_, err := short.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	require.EqualValues(t, 1, server.peers.closed[closedExpired].Load())
	require.Equal(t, [][]byte{{1}, {}}, long.Ask(t, []byte("ping"), nil))
}

// With other authorities only those connections go on whose certificates they have signed too, also
// idle ones, and none that was accepted but not verified before the change.
func TestTLSOtherAuthorities(t *testing.T) {
	second := certtest.NewCA("second")
	server, _ := startTLSServer(t, Limits{}, mutualTLS(authority))
	both := mutualTLS(authority)
	both.TLS.ClientCAs = authority.Pool()
	both.TLS.ClientCAs.AddCert(second.Certificate())
	late := tls.Client(lookuptest.DialPeer(t, hostOf(server)).Conn, clientTLS(authority.Leaf("late")))
	eventuallyConnections(t, server, 1)
	old := dialTLS(t, server, clientTLS(authority.Leaf("old")))
	require.Equal(t, [][]byte{{1}, {}}, old.Ask(t, []byte("ping"), nil))

	require.NoError(t, server.SetListener(server.Addrs()[0], both))
	renewed := dialTLS(t, server, clientTLS(second.Leaf("new")))
	for _, p := range []*lookuptest.Peer{old, renewed} {
		require.Equal(t, [][]byte{{1}, {}}, p.Ask(t, []byte("ping"), nil))
	}

	require.NoError(t, server.SetListener(server.Addrs()[0], mutualTLS(second)))
	_, err := old.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	require.EqualValues(t, 1, server.peers.closed[closedRevoked].Load())
	require.Equal(t, [][]byte{{1}, {}}, renewed.Ask(t, []byte("ping"), nil))
	_, err = late.Read(make([]byte, 1))
	require.ErrorContains(t, err, "certificate required", "it has none of an authority that is asked for")
}
