package server

import (
	"crypto/tls"

	"github.com/hitline/hitline/lookup/access"
)

// Listener is an address to serve on, with its settings.
type Listener struct {
	// Address is as in Config.Listen, or tls://host:port.
	Address string
	Settings
}

// Settings are what can change of a listener while the server runs: see Server.SetListener.
type Settings struct {
	// Rules say who may do what. nil: every request on loopback and unix sockets,
	// access.ReadOnly on any other address.
	Rules *access.Rules
	// TLS is the configuration of a tls:// address, nil for any other. It must have a
	// certificate. With ClientCAs clients need a certificate too, whatever ClientAuth is.
	TLS *tls.Config
}
