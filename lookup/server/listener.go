package server

import (
	"crypto/tls"
	"fmt"
	"io/fs"
	"net"
	"slices"
	"sync/atomic"

	"github.com/hitline/hitline/lookup/access"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/server/internal/listen"
	"github.com/hitline/hitline/lookup/server/internal/tlspair"
)

// Listener is an address to serve on, with its settings.
type Listener struct {
	// Address is tcp://host:port or tls://host:port (port 0: any free one), or ipc:///path.
	Address string
	// Socket, if set, is a listening TCP or unix socket that is bound to Address already, such as systemd passes one: a
	// *net.TCPListener or *net.UnixListener. The server closes it, but leaves the connections that wait in its backlog,
	// and the file of a unix socket with its mode, to who has opened it. What peers may do follows the address that it
	// has.
	Socket net.Listener
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

// DefaultIPCMode is the default of Config.IPCMode. Whoever may write to a socket's file may
// connect; by default that is the server's own user.
const DefaultIPCMode fs.FileMode = 0o600

// listener is a bound address with its settings.
type listener struct {
	*listen.Socket

	// settings are those in effect: their Rules are not nil. What they point to does not change.
	settings atomic.Pointer[Settings]
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
		settings.TLS = tlspair.Prepare(settings.TLS)
	}
	if settings.Rules == nil {
		settings.Rules = rulesOf(access.ReadOnly)
		if l.Local || settings.TLS != nil && settings.TLS.ClientCAs != nil {
			settings.Rules = rulesOf(access.All)
		}
	}
	l.settings.Store(&settings)
}

// checkListeners returns listeners, or the default. It returns api.ErrConfig if one is not valid.
func checkListeners(listeners []Listener) ([]Listener, error) {
	all := slices.Clone(listeners)
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
	_, isSocket := l.Socket.(listen.Listener)
	switch {
	case err != nil:
		return err
	case network == "tls" && l.TLS == nil:
		return fmt.Errorf("%q has no TLS configuration", l.Address)
	case network != "tls" && l.TLS != nil:
		return fmt.Errorf("%q has a TLS configuration; its address must be tls://host:port", l.Address)
	case l.Socket != nil && !isSocket:
		return fmt.Errorf("%q has a socket that is no listening TCP or unix socket", l.Address)
	case l.TLS != nil && len(l.TLS.Certificates) == 0 && l.TLS.GetCertificate == nil:
		return fmt.Errorf("%q has no certificate", l.Address)
	}
	return nil
}
