package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/certtest"
)

// tlsServer accepts TLS connections for a fakeServer and returns its address.
func tlsServer(t *testing.T, cfg *tls.Config) (addr string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	f := &fakeServer{}
	accepted := make(chan struct{})
	go func() {
		defer close(accepted)
		for {
			nc, err := listener.Accept()
			if err != nil {
				return
			}
			f.start(tls.Server(nc, cfg))
		}
	}()
	t.Cleanup(func() {
		listener.Close()
		<-accepted
		f.all.Wait()
	})
	return "tls://" + listener.Addr().String()
}

// A client connects over TLS to the name of its address, and to no other.
func TestTLS(t *testing.T) {
	noLeaks(t)
	ca, other := certtest.NewCA("one"), certtest.NewCA("other")
	addr := tlsServer(t, &tls.Config{Certificates: []tls.Certificate{ca.Leaf("127.0.0.1", "server.test")}})
	roots := &tls.Config{RootCAs: ca.Pool()}
	c := dialAs(t, addr, WithTLS(roots))
	hit, err := c.Lookup(background, 48, someHashes)
	require.NoError(t, err)
	require.EqualValues(t, 48, hit.Tokens)
	big := make([]byte, 4<<20)
	hit, err = c.Lookup(background, 49, coordinator.NewHashes(big, 32))
	require.NoError(t, err)
	require.EqualValues(t, 49, hit.Tokens)
	named := &tls.Config{RootCAs: ca.Pool(), ServerName: "server.test"}
	opt := WithTLS(named)
	named.ServerName = "other.test" // it is copied
	dialAs(t, addr, opt)
	require.Zero(t, roots.MinVersion)

	_, err = Dial(background, addr, WithTLS(&tls.Config{RootCAs: ca.Pool(), ServerName: "other.test"}))
	require.ErrorIs(t, err, ErrConnect)
	require.ErrorAs(t, err, new(x509.HostnameError))
	for _, opts := range [][]Option{nil, {WithTLS(nil)}, {WithTLS(&tls.Config{RootCAs: other.Pool()})}} {
		_, err = Dial(background, addr, opts...)
		require.ErrorIs(t, err, ErrConnect)
		require.ErrorAs(t, err, new(x509.UnknownAuthorityError))
	}
}

// TLS 1.2 is not spoken, whatever the configuration says.
func TestTLSVersion(t *testing.T) {
	noLeaks(t)
	cfg := testTLS.server.Clone()
	cfg.MaxVersion = tls.VersionTLS12
	roots := testTLS.client.Clone()
	roots.MinVersion = tls.VersionTLS12
	c, err := Dial(background, tlsServer(t, cfg), WithTLS(roots))
	if err == nil {
		c.Close()
	}
	require.ErrorIs(t, err, ErrConnect)
	require.ErrorContains(t, err, "TLS handshake: ")
}

// At an address without TLS the error asks for it: one server closes, another answers in clear text.
func TestTLSAtAnAddressWithoutIt(t *testing.T) {
	for _, reply := range []string{"", "HTTP/1.1 400 Bad Request\r\n\r\n"} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer listener.Close()
		served := make(chan struct{})
		go func() {
			defer close(served)
			nc, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = nc.Read(make([]byte, 1<<16)) // all of the hello, so that closing sends no reset
			_, _ = nc.Write([]byte(reply))
			_ = nc.Close()
		}()
		_, err = Dial(background, "tls://"+listener.Addr().String(), WithTLS(testTLS.client))
		require.ErrorIs(t, err, ErrConnect)
		require.ErrorContains(t, err, ": has this address TLS?")
		<-served
	}
}

// The client shows its certificate. Where it has none the server refuses it, after the handshake.
func TestTLSClientCertificate(t *testing.T) {
	noLeaks(t)
	clients := certtest.NewCA("clients")
	cfg := testTLS.server.Clone()
	cfg.ClientCAs, cfg.ClientAuth = clients.Pool(), tls.RequireAndVerifyClientCert
	addr := tlsServer(t, cfg)
	with := testTLS.client.Clone()
	with.Certificates = []tls.Certificate{clients.Leaf("engine.test")}
	require.NoError(t, ping(dialAs(t, addr, WithTLS(with))))

	_, err := Dial(background, addr, WithTLS(testTLS.client))
	require.ErrorIs(t, err, ErrConnect)
	require.ErrorContains(t, err, "certificate required")
}

// A call whose server does not read ends at its time, as does Close: neither waits to say that
// the connection ends.
func TestTLSOfServerThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout = time.Second
		var ends []net.Conn
		cfg := testTLS.client.Clone()
		cfg.Time = func() time.Time { return testTLS.server.Certificates[0].Leaf.NotBefore } // not that of the bubble
		d, err := newConfig([]Option{WithTLS(cfg), WithDialer(func(context.Context, string, string) (net.Conn, error) {
			here, there := net.Pipe()
			ends = append(ends, there)
			go func() {
				queued := newQueuedConn(there)
				defer close(queued.queue)
				_ = tls.Server(queued, testTLS.server).Handshake()
			}()
			return here, nil
		})}).dialer("tls://server.test:1")
		require.NoError(t, err)
		c := lazyClient(t, d, timeout)
		begun := time.Now()
		_, err = c.Lookup(background, 16, coordinator.NewHashes(make([]byte, 128<<10), 32))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.ErrorIs(t, err, ErrNoAnswer)
		require.Equal(t, timeout, time.Since(begun))
		begun = time.Now()
		require.NoError(t, c.Close())
		require.Zero(t, time.Since(begun))
		for _, end := range ends {
			end.Close()
		}
	})
}

// queuedConn does not wait for the reader of a net.Pipe, which may be writing itself.
type queuedConn struct {
	net.Conn
	queue chan []byte // closed by the writer when it is done
}

func newQueuedConn(nc net.Conn) queuedConn {
	q := queuedConn{nc, make(chan []byte, 100)}
	go func() {
		for b := range q.queue {
			_, _ = nc.Write(b)
		}
	}()
	return q
}

func (q queuedConn) Write(b []byte) (int, error) {
	q.queue <- bytes.Clone(b)
	return len(b), nil
}

// A handshake that does not end is bounded by the timeout.
func TestTLSHandshakeTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		defer there.Close()
		begun := time.Now()
		_, err := Dial(background, "tls://server.test:1", WithTimeout(time.Second),
			WithDialer(func(context.Context, string, string) (net.Conn, error) { return here, nil }))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.ErrorIs(t, err, ErrConnect)
		require.Equal(t, time.Second, time.Since(begun))
		_, err = here.Write(nil)
		require.Error(t, err, "it is closed")
	})
}

// The lookups of a batch share TLS records.
func TestTLSBatchIsFewWrites(t *testing.T) {
	f := &fakeServer{}
	var writes [][]byte
	dial := func(context.Context, string, string) (net.Conn, error) {
		here, there, err := socketPair()
		f.start(tls.Server(there, testTLS.server))
		return writesConn{here, &writes}, err
	}
	t.Cleanup(f.all.Wait)
	c := dialAs(t, "tls://server.test:1", WithTLS(testTLS.client), WithDialer(dial))
	writes = nil
	batch := make([]BatchLookup, 60) // as many as may be in flight, of a server that tells no limits
	for i := range batch {
		batch[i] = BatchLookup{NumTokens: int64(i), Hashes: someHashes}
	}
	require.NoError(t, c.Batch(background, batch))
	for i := range batch {
		require.EqualValues(t, i, batch[i].Hit.Tokens)
	}
	require.LessOrEqual(t, len(writes), 2)
}
