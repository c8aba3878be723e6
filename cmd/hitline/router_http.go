package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"sync/atomic"

	"github.com/hitline/hitline/cmd/hitline/internal/config"
	"github.com/hitline/hitline/lookup/access"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/server"
	"github.com/hitline/hitline/router/httpapi"
)

// maxRouterConns bounds the HTTP connections of routers. Each takes a file descriptor; further ones close those that
// wait for a request.
const maxRouterConns = 1024

// routerHTTP is the HTTP server of router.listen.
type routerHTTP struct {
	*httpServer
	handler *httpapi.Handler
	loaded  atomic.Bool // whether everything can be answered: see httpapi.Config.Loaded
}

// openRouterHTTP binds router.listen and serves in the background until close or shutdown.
func (r *running) openRouterHTTP(srv *server.Server) (*routerHTTP, error) {
	read := r.read[len(r.read)-1] // see listenersOf
	r.routerSettings.Store(&read.Settings)
	_, address, err := api.SplitAddress(read.Address)
	if err != nil {
		return nil, r.cfg.WithOrigin("router.listen", err)
	}
	bound, err := r.sockets.listen(config.RouterListenPath, address)
	if err != nil {
		return nil, fmt.Errorf("router.listen: %w", listenError(err, "give another address"))
	}
	f := &routerHTTP{}
	f.handler = httpapi.New(httpapi.Config{
		Service: r.router, Authorize: httpapi.ByRules(r.routerRules), Local: r.cfg.Router.Listen.IsLocal(), Hosts: r.cfg.HTTPHosts,
		Loaded: f.loaded.Load, Ready: srv.Ready, Logger: r.logger, MaxMemory: requestMemory(r.services.memory),
	})
	s := newHTTPServer(f.handler, srv.Draining, r.logger)
	s.ReadTimeout, s.WriteTimeout = 0, 0 // the handler has its own
	s.ConnContext = httpapi.ConnContext
	listener := &httpListener{
		field: "router.listen", bound: bound, maxConns: httpConns(maxRouterConns, server.OpenFileLimit()), cpu: r.cpu,
		probes: []string{"/health", "/ready"},
	}
	if read.Settings.TLS != nil {
		listener.secure = &tls.Config{
			MinVersion:         tls.VersionTLS13,
			GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return r.routerSettings.Load().TLS, nil },
		}
	}
	f.httpServer = serveHTTP(s, listener, r.logger)
	return f, nil
}

// routerRules returns the rules of router.listen in effect, and the authorities of which clients need a certificate, nil if
// they need none.
func (r *running) routerRules() (*access.Rules, *x509.CertPool) {
	settings := r.routerSettings.Load()
	if settings.TLS == nil {
		return settings.Rules, nil
	}
	return settings.Rules, settings.TLS.ClientCAs
}
