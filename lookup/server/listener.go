package server

import (
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hitline/hitline/lookup/access"
	"github.com/hitline/hitline/lookup/api"
)

// Listener is an address to serve on, with its settings.
type Listener struct {
	// Address is tcp://host:port or tls://host:port (port 0: any free one), or ipc:///path.
	Address string
	Settings
}

// Settings are what can change of a listener while the server runs: see Server.SetListener.
type Settings struct {
	// Rules say who may do what. nil: every request on loopback, on unix sockets and for clients
	// with a certificate, access.ReadOnly otherwise.
	Rules *access.Rules
	// TLS is the configuration of a tls:// address, nil for any other. It must have a
	// certificate. Only TLS 1.3 is served. With ClientCAs clients need a certificate too, and
	// without they are asked for none: ClientAuth, GetConfigForClient, and what resumes sessions
	// are not used.
	TLS *tls.Config
}

// netListener is what *net.TCPListener and *net.UnixListener have.
type netListener interface {
	net.Listener
	SetDeadline(t time.Time) error
	syscall.Conn
}

// listener is a bound address.
type listener struct {
	netListener
	addr       string // as Server.Addrs returns it
	isLocal    bool   // only processes of this machine can connect
	removeFile func() // removes the file of the socket; nil if it has none

	// settings are those in effect: their Rules are not nil. What they point to does not change.
	settings atomic.Pointer[Settings]
}

// Close stops listening and removes the socket's file. Accepted connections stay open.
func (l *listener) Close() error {
	l.unlink()
	return l.netListener.Close()
}

// unlink removes the file of the socket, once.
func (l *listener) unlink() {
	if l.removeFile != nil {
		l.removeFile()
		l.removeFile = nil
	}
}

// rulesOf returns the rules of a listener without credentials.
func rulesOf(anonymous access.Permissions) *access.Rules {
	rules, _ := access.NewRules(anonymous, nil) // cannot fail: no credential
	return rules
}

// isTLS reports whether it is the listener of a tls:// address.
func (l *listener) isTLS() bool { return l.settings.Load().TLS != nil }

// setSettings sets the settings in effect.
func (l *listener) setSettings(settings Settings) {
	if settings.TLS != nil {
		settings.TLS = tlsConfigOf(settings.TLS)
	}
	if settings.Rules == nil {
		settings.Rules = rulesOf(access.ReadOnly)
		if l.isLocal || settings.TLS != nil && settings.TLS.ClientCAs != nil {
			settings.Rules = rulesOf(access.All)
		}
	}
	l.settings.Store(&settings)
}

// listenersOf returns the listeners of a configuration. It returns api.ErrConfig if one is not valid.
func listenersOf(cfg *Config) ([]Listener, error) {
	all := slices.Clone(cfg.Listeners)
	if len(all) == 0 {
		all = []Listener{{Address: api.DefaultListen}}
	}
	for i := range all {
		if err := all[i].check(); err != nil {
			return nil, fmt.Errorf("%w: listen: %w", api.ErrConfig, err)
		}
	}
	return all, nil
}

// check returns an error if the address is not valid, or the settings do not fit it.
func (l *Listener) check() error {
	network, _, err := api.SplitAddress(l.Address)
	switch {
	case err != nil:
		return err
	case network == "tls" && l.TLS == nil:
		return fmt.Errorf("%q has no TLS configuration", l.Address)
	case network != "tls" && l.TLS != nil:
		return fmt.Errorf("%q has a TLS configuration; its address must be tls://host:port", l.Address)
	case l.TLS != nil && len(l.TLS.Certificates) == 0 && l.TLS.GetCertificate == nil:
		return fmt.Errorf("%q has no certificate", l.Address)
	}
	return nil
}

// SetListener replaces the settings of an address, as configured or as bound. They are in effect
// for every request that is served after it returns, also on open connections: those whose
// credential is gone are closed. It returns api.ErrConfig if the server does not listen there or the
// settings do not fit the address, and ErrNotReady before Start has returned.
func (s *Server) SetListener(address string, settings Settings) error {
	select {
	case <-s.booted:
	default:
		return fmt.Errorf("%w: not listening yet", ErrNotReady)
	}
	l, err := s.findListener(address)
	if err != nil {
		return err
	}
	if err := (&Listener{Address: l.addr, Settings: settings}).check(); err != nil {
		return fmt.Errorf("%w: listen: %w", api.ErrConfig, err)
	}
	l.setSettings(settings)
	s.wakeSessions(l)
	return nil
}

// findListener returns the listener that is bound to an address, or was configured with it.
func (s *Server) findListener(address string) (*listener, error) {
	network, rest, err := api.SplitAddress(address)
	if err != nil {
		return nil, fmt.Errorf("%w: listen: %w", api.ErrConfig, err)
	}
	is := func(other string) bool {
		n, r, err := api.SplitAddress(other)
		return err == nil && n == network && r == rest
	}
	for i, l := range s.acceptor.listeners {
		if is(l.addr) || is(s.listeners[i].Address) {
			return l, nil
		}
	}
	return nil, fmt.Errorf("%w: not listening on %q", api.ErrConfig, address)
}

// wakeSessions makes the event loops check the authorization of a listener's sessions: see session.wake.
func (s *Server) wakeSessions(l *listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ses, c := range s.sessions {
		if ses.listener == l {
			_ = c.Wake(nil) // it is being closed already
		}
	}
}
