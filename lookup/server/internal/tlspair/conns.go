// Package tlspair serves TLS for event loops that have none. Goroutines copy between a tls.Conn and one end of a pair of
// unix sockets, and an event loop serves the other end as it serves any connection. So turns, limits and timeouts are the
// same. What a connection is for, it leaves to an Owner.
package tlspair

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
	"github.com/hitline/hitline/internal/ctxerr"
	"github.com/hitline/hitline/internal/requesterror"
	"github.com/hitline/hitline/lookup/server/internal/listen"
	"github.com/hitline/hitline/lookup/server/internal/sockets"
)

// Owner is what one connection is for. Goroutines of the connection call it, one at a time up to Serve.
type Owner interface {
	// Config returns the configuration of the handshake that begins: see Prepare.
	Config() *tls.Config
	// Timeouts returns how long a handshake may take, and how long a peer may read nothing.
	Timeouts() (handshake, write time.Duration)
	// Serve takes the other end of the pair of a connection, also if it returns an error: that is not served then.
	Serve(c *Conn, pair *net.UnixConn, state *tls.ConnectionState) error
	// Failed tells why the connection is not served, or no longer: an error of this package, requesterror.ErrFault, that
	// of Serve, or that there are no descriptors.
	Failed(err error)
	// Ended is called in the end, once for each connection that Conns has served.
	Ended()
}

// Why a connection fails.
var (
	ErrHandshake = errors.New("the TLS handshake has failed")      // the peer's mistake
	ErrSilent    = errors.New("the peer has sent nothing")         // as a probe of the port does
	ErrStopping  = errors.New("no further connections are served") // see Conns.Stop
	ErrUnread    = errors.New("the peer reads nothing")            // its owner is to end
)

// Conns are the TLS connections of a server. It owns their goroutines.
type Conns struct {
	cpu        *cpushare.Share // what handshakes compute on
	listening  *listen.Acceptor
	handshakes sync.WaitGroup // a connection each, until it is served or has failed
	goroutines sync.WaitGroup

	mu       sync.Mutex
	open     map[*Conn]bool // true while it is in the handshake
	stopping bool           // handshakes have listen.BacklogTimeout
	closed   bool           // no more connections
}

// New returns the connections that an acceptor accepts. A handshake computes for about a millisecond, so a crowd of new
// connections would keep the event loops waiting if they had all processors.
func New(cpu *cpushare.Share, listening *listen.Acceptor) *Conns {
	return &Conns{cpu: cpu, listening: listening, open: map[*Conn]bool{}}
}

// currentConfig makes a handshake use the configuration that its owner has when it begins.
var currentConfig = &tls.Config{
	MinVersion: tls.VersionTLS13,
	GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		return hello.Conn.(*transport).owner.Config(), nil
	},
}

// Prepare returns a configuration with what holds for all. A resumed session would not be verified again, so there are
// none. A certificate that is not verified would only mislead, so none is asked for without authorities.
func Prepare(cfg *tls.Config) *tls.Config {
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

// Serve begins the handshake of a connection of an address. It returns ErrStopping, or another error, if the connection
// is not served: its owner is not called then.
func (t *Conns) Serve(conn *net.TCPConn, address string, owner Owner) error {
	c := &Conn{}
	c.TCPConn, c.owner = conn, owner
	c.handshake = t.cpu.NewClaim(cpushare.KeyOf(address, conn.RemoteAddr()))
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	c.raw = raw
	if timeout, _ := owner.Timeouts(); !t.add(c, timeout) {
		return ErrStopping
	}
	go func() {
		err := requesterror.Call(func() error { return t.start(c, address) })
		if err != nil {
			owner.Failed(err)
		}
		t.handshakes.Done()
		if err != nil {
			c.linger(time.Now().Add(lingerTimeout)) // to read the alert
			c.discard()
			t.end(c)
		}
	}()
	return nil
}

// start does the handshake and gives the owner its end of the pair. Then two further goroutines
// copy: the stack of this one has grown in the handshake.
func (t *Conns) start(c *Conn, address string) error {
	c.tls = tls.Server(&c.transport, currentConfig)
	if err := c.handshakeOnce(); err != nil {
		return t.explain(c, err)
	}
	var pair, inner *net.UnixConn
	timeout, _ := c.owner.Timeouts()
	err := t.listening.WithDescriptors(address, time.Now().Add(timeout), func() (err error) {
		pair, inner, err = sockets.ConnPair()
		return err
	})
	if err != nil {
		return err
	}
	t.endHandshake(c, inner)
	c.handshake = nil
	state := c.tls.ConnectionState()
	if err := c.owner.Serve(c, pair, &state); err != nil {
		return err
	}
	c.copying.Store(2)
	for _, copyUntilEnd := range [...]func(){c.copyIn, c.copyOut} {
		go func() {
			if err := requesterror.Run(copyUntilEnd); err != nil {
				c.owner.Failed(err)
				c.closeNow() // so that the other ends
			}
			if c.copying.Add(-1) == 0 {
				t.end(c)
			}
		}()
	}
	return nil
}

// handshakeOnce does the handshake, and ends its claim to compute.
func (c *Conn) handshakeOnce() error {
	timeout, _ := c.owner.Timeouts()
	defer c.handshake.Close()
	defer time.AfterFunc(timeout, c.handshake.Close).Stop() // while it waits for a processor
	return c.tls.Handshake()
}

// explain returns why a handshake has failed. A peer that has sent nothing is no mistake.
func (t *Conns) explain(c *Conn, err error) error {
	var header tls.RecordHeaderError
	timeout, _ := c.owner.Timeouts()
	switch {
	case !c.received.Load() && t.isStopping(), errors.Is(err, net.ErrClosed):
		return ErrStopping
	case !c.received.Load() && !errors.Is(err, os.ErrDeadlineExceeded):
		return ErrSilent
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("%w: it did not end within limits.handshake_timeout (%v)", ErrHandshake, timeout)
	case errors.Is(err, io.EOF):
		return fmt.Errorf("%w: the peer has closed the connection", ErrHandshake)
	case errors.As(err, &header):
		return fmt.Errorf("%w: %w; if this is a client without TLS, its address must begin with tls://", ErrHandshake, err)
	}
	return fmt.Errorf("%w: %w", ErrHandshake, err)
}

// end closes a connection whose goroutines have ended, all but the caller.
func (t *Conns) end(c *Conn) {
	c.closeNow()
	c.owner.Ended()
	t.mu.Lock()
	delete(t.open, c)
	t.mu.Unlock()
	t.goroutines.Done()
}

// add adds a connection in the handshake, which has a time to end. It returns false if no more
// are served.
func (t *Conns) add(c *Conn, timeout time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	if t.stopping {
		timeout = min(timeout, listen.BacklogTimeout)
	}
	_ = c.SetDeadline(time.Now().Add(timeout)) // fails if it is closed
	t.open[c] = true
	t.handshakes.Add(1)
	t.goroutines.Add(1)
	return true
}

// endHandshake ends the time of a handshake, and gives the connection its end of the pair.
func (t *Conns) endHandshake(c *Conn, inner *net.UnixConn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c.inner = inner
	t.open[c] = false
	_ = c.SetDeadline(time.Time{}) // fails if it is closed
}

func (t *Conns) isStopping() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.stopping
}

// Stop makes the handshakes end soon: at once if the peer has sent nothing. Otherwise its first
// request may be on the way.
func (t *Conns) Stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stopping = true
	for c, inHandshake := range t.open {
		switch {
		case !inHandshake:
		case c.received.Load() || c.hasUnread():
			_ = c.SetDeadline(time.Now().Add(listen.BacklogTimeout))
		default:
			_ = c.SetDeadline(ctxerr.LongAgo)
		}
	}
}

// WaitHandshakes waits until no connection is in its handshake. None must begin meanwhile.
func (t *Conns) WaitHandshakes() { t.handshakes.Wait() }

// NumUnflushed returns how many connections send replies of an owner that has ended.
func (t *Conns) NumUnflushed() (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for c := range t.open {
		if c.writesEnd.Load() != nil && !c.flushed.Load() {
			n++
		}
	}
	return n
}

// Close closes all connections and waits until their goroutines have ended.
func (t *Conns) Close() {
	t.mu.Lock()
	t.closed = true
	for c := range t.open {
		c.closeNow()
	}
	t.mu.Unlock()
	t.goroutines.Wait()
}
