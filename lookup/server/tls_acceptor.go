package server

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/hitline/hitline/internal/cpushare"
	"github.com/hitline/hitline/internal/requesterror"
	"github.com/hitline/hitline/lookup/access"
	"github.com/hitline/hitline/lookup/server/internal/listen"
)

// tlsConns are the open connections of tls:// listeners. It owns their goroutines.
type tlsConns struct {
	cpu        *cpushare.Share // what handshakes compute on
	handshakes sync.WaitGroup  // a connection each, until it is enrolled or has failed
	goroutines sync.WaitGroup

	mu       sync.Mutex
	open     map[*tlsConn]bool // true while it is in the handshake
	draining bool              // handshakes have listen.BacklogTimeout
	closed   bool              // no more connections
}

// newTLSConns returns those of a server. A handshake computes for about a millisecond, so a crowd of new connections
// would keep the event loops waiting if they had all processors.
func newTLSConns(cpu *cpushare.Share) *tlsConns {
	return &tlsConns{cpu: cpu, open: map[*tlsConn]bool{}}
}

// currentSettings makes a handshake use the settings that its listener has when it begins.
var currentSettings = &tls.Config{
	MinVersion: tls.VersionTLS13,
	GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		t := hello.Conn.(*tlsTransport)
		t.settings = t.listener.settings.Load()
		return t.settings.TLS, nil
	},
}

// tlsConfigOf returns a listener's configuration with what holds for all. A resumed session
// would not be verified again, so there are none. A certificate that is not verified would only
// mislead, so none is asked for without authorities.
func tlsConfigOf(cfg *tls.Config) *tls.Config {
	cfg = cfg.Clone()
	cfg.MinVersion, cfg.MaxVersion = tls.VersionTLS13, 0
	cfg.SessionTicketsDisabled = true
	cfg.DynamicRecordSizingDisabled = true // small records make replies of many slower
	cfg.ClientAuth = tls.NoClientCert
	if cfg.ClientCAs != nil {
		cfg.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return cfg
}

// admitTLS begins the handshake of a connection that is counted.
func (a *acceptor) admitTLS(ln *listener, conn *net.TCPConn) error {
	c := &tlsConn{peer: conn.RemoteAddr()}
	c.TCPConn, c.listener, c.limits = conn, ln, &a.server.limits
	c.handshake = a.tls.cpu.NewClaim(cpushare.KeyOf(ln.Address, conn.RemoteAddr()))
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	c.raw = raw
	if !a.tls.add(c, a.server.limits.Load().HandshakeTimeout) {
		a.dropDraining(conn)
		return nil
	}
	go func() {
		err := requesterror.Call(func() error { return a.startTLS(c) })
		if errors.Is(err, requesterror.ErrFault) {
			a.reportFault(c, err)
		}
		a.tls.handshakes.Done()
		if err != nil {
			c.linger(time.Now().Add(lingerTimeout)) // to read the alert
			c.discard()
			a.endTLS(c)
		}
	}()
	return nil
}

// reportFault counts and logs a connection that ends by a fault.
func (a *acceptor) reportFault(c *tlsConn, err error) {
	a.server.closed[closedFault].Add(1)
	a.server.peers.connectionClosed(closedFault, c.peer, err)
}

// startTLS does the handshake and hands the connection to a loop. Then two further goroutines
// copy: the stack of this one has grown in the handshake. An error is counted and logged.
func (a *acceptor) startTLS(c *tlsConn) error {
	c.tls = tls.Server(&c.tlsTransport, currentSettings)
	err := c.handshakeOnce()
	if err != nil {
		a.handshakeFailed(c, err)
		return err
	}
	var loop, inner *net.UnixConn
	err = a.WithDescriptors(c.listener.Address, time.Now().Add(a.server.limits.Load().HandshakeTimeout), func() (err error) {
		loop, inner, err = connPair()
		return err
	})
	if err != nil {
		a.Fail("cannot serve a connection", c.listener.Address, err)
		return err
	}
	a.tls.endHandshake(c, inner)
	if !a.acquireEnrolling() {
		_ = loop.Close()
		a.server.closed[closedDraining].Add(1)
		return ErrServerClosed
	}
	defer func() { <-a.enrolling }()
	c.handshake = nil
	state := c.tls.ConnectionState()
	p := &pendingConn{peer: c.peer, listener: c.listener, settings: c.settings, tls: c}
	p.certificates = access.CertificatesOf(&state, c.settings.TLS.ClientCAs)
	if err := a.enroll(loop, p); err != nil {
		a.Fail("cannot serve a connection", c.listener.Address, err)
		return err
	}
	c.copying.Store(2)
	for _, copyUntilEnd := range [...]func(){c.copyIn, c.copyOut} {
		go func() {
			if err := requesterror.Run(copyUntilEnd); err != nil {
				a.reportFault(c, err)
				c.closeNow() // so that the other ends
			}
			if c.copying.Add(-1) == 0 {
				a.endTLS(c)
			}
		}()
	}
	return nil
}

// handshakeOnce does the handshake, and ends its claim to compute.
func (c *tlsConn) handshakeOnce() error {
	defer c.handshake.Close()
	defer time.AfterFunc(c.limits.Load().HandshakeTimeout, c.handshake.Close).Stop() // while it waits for a processor
	return c.tls.Handshake()
}

// handshakeFailed counts and logs a failed handshake. A peer that has sent nothing, as a probe of
// the port does, is no mistake.
func (a *acceptor) handshakeFailed(c *tlsConn, err error) {
	var header tls.RecordHeaderError
	reason := closedTLSHandshake
	switch {
	case !c.received.Load() && a.tls.isDraining(), errors.Is(err, net.ErrClosed):
		reason = closedDraining
	case !c.received.Load() && !errors.Is(err, os.ErrDeadlineExceeded):
		reason = closedByPeer
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = fmt.Errorf("it did not end within limits.handshake_timeout (%v)", a.server.limits.Load().HandshakeTimeout)
	case errors.Is(err, io.EOF):
		err = errors.New("the peer has closed the connection")
	case errors.As(err, &header):
		err = fmt.Errorf("%w; if this is a client without TLS, its address must begin with tls://", err)
	}
	a.server.closed[reason].Add(1)
	a.server.peers.connectionClosed(reason, c.peer, err)
}

// endTLS closes a connection whose goroutines have ended, all but the caller.
func (a *acceptor) endTLS(c *tlsConn) {
	c.closeNow()
	a.server.connections.Add(-1)
	a.tls.remove(c)
}

// add adds a connection in the handshake, which has a time to end. It returns false if no more
// are served.
func (t *tlsConns) add(c *tlsConn, timeout time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	if t.draining {
		timeout = min(timeout, listen.BacklogTimeout)
	}
	_ = c.SetDeadline(time.Now().Add(timeout)) // fails if it is closed
	t.open[c] = true
	t.handshakes.Add(1)
	t.goroutines.Add(1)
	return true
}

// endHandshake ends the time of a handshake, and gives the connection its end of the pair.
func (t *tlsConns) endHandshake(c *tlsConn, inner *net.UnixConn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c.inner = inner
	t.open[c] = false
	_ = c.SetDeadline(time.Time{}) // fails if it is closed
}

// remove removes a connection whose goroutines have ended.
func (t *tlsConns) remove(c *tlsConn) {
	t.mu.Lock()
	delete(t.open, c)
	t.mu.Unlock()
	t.goroutines.Done()
}

func (t *tlsConns) isDraining() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.draining
}

// drain makes the handshakes end soon: at once if the peer has sent nothing. Otherwise its first
// request may be on the way.
func (t *tlsConns) drain() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.draining = true
	for c, inHandshake := range t.open {
		switch {
		case !inHandshake:
		case c.received.Load() || c.hasUnread():
			_ = c.SetDeadline(time.Now().Add(listen.BacklogTimeout))
		default:
			_ = c.SetDeadline(time.Unix(1, 0))
		}
	}
}

// numUnflushed returns how many connections send replies of a session that has ended.
func (t *tlsConns) numUnflushed() (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for c := range t.open {
		if c.end.Load() != nil && !c.flushed.Load() {
			n++
		}
	}
	return n
}

// close closes all connections and waits until their goroutines have ended.
func (t *tlsConns) close() {
	t.mu.Lock()
	t.closed = true
	for c := range t.open {
		c.closeNow()
	}
	t.mu.Unlock()
	t.goroutines.Wait()
}
