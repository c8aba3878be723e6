package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/hitline/hitline/lookup/access"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/server"
	"github.com/hitline/hitline/router/httpapi"
)

// maxRouterConns bounds the HTTP connections of routers. Each takes a file descriptor; further ones close those that
// wait for a request.
const maxRouterConns = 1024

// routerConns returns how many of them may be open with a limit of open files: half of what limits.max_connections leaves,
// a quarter, so that routers do not keep out the clients of listen.
func routerConns(openFiles uint64) int {
	return int(max(1, min(maxRouterConns, openFiles/8)))
}

// openFileLimit returns the limit of open files, a high one if it cannot be told.
func openFileLimit() uint64 {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 1 << 20
	}
	return limit.Cur
}

// routerHTTP serves who holds what over HTTP.
type routerHTTP struct {
	handler    *httpapi.Handler
	logger     *slog.Logger
	httpServer *http.Server
	listener   net.Listener
	settings   atomic.Pointer[server.Settings] // in effect; the Rules are not nil
	loaded     atomic.Bool                     // before, only health and readiness are answered
	done       chan struct{}                   // closed when the goroutine that serves has returned
}

// openRouterHTTP binds router.listen and serves in the background until close or shutdown. It returns nil if there is no
// address.
func (r *running) openRouterHTTP(srv *server.Server) (*routerHTTP, error) {
	if r.cfg.Router.Listen == nil {
		return nil, nil
	}
	read := r.read[len(r.read)-1] // see listenersOf
	_, address, err := api.SplitAddress(read.Address)
	if err != nil {
		return nil, r.cfg.Blame("router.listen", err)
	}
	f := &routerHTTP{logger: r.logger, done: make(chan struct{})}
	f.setSettings(read.Settings)
	if f.listener, err = net.Listen("tcp", address); err != nil {
		return nil, configError(fmt.Errorf("cannot listen for the router: %w", err))
	}
	f.handler = httpapi.New(httpapi.Config{
		Service: r.router, Authorize: httpapi.ByRules(func() *access.Rules { return f.settings.Load().Rules }), Local: r.cfg.Router.Listen.IsLocal(),
		Configure: r.completeSource, Dump: r.router.DumpHandler(), Loaded: f.loaded.Load, Ready: srv.Ready, Logger: r.logger,
	})
	f.httpServer = newHTTPServer(f.handler, r.logger)
	f.httpServer.ReadTimeout, f.httpServer.WriteTimeout = 0, 0 // the handler has its own
	var listener net.Listener = newEvictingListener(f.listener, routerConns(openFileLimit()))
	if read.Settings.TLS != nil {
		listener = tls.NewListener(listener, &tls.Config{
			MinVersion:         tls.VersionTLS13,
			GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return f.settings.Load().TLS, nil },
		})
	}
	go func() {
		defer close(f.done)
		if err := f.httpServer.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			r.logger.Error("router.listen is no longer served", "error", err)
		}
	}()
	return f, nil
}

// setSettings puts settings of the listener into effect: for new connections, and for new requests of all.
func (f *routerHTTP) setSettings(settings server.Settings) {
	if settings.Rules == nil { // on loopback, without any that are configured
		settings.Rules, _ = access.NewRules(access.All, nil) // cannot fail: no credential
	}
	f.settings.Store(&settings)
}

// address returns the bound address.
func (f *routerHTTP) address() string { return f.listener.Addr().String() }

// setLoaded says that everything can be answered.
func (f *routerHTTP) setLoaded() {
	if f != nil {
		f.loaded.Store(true)
	}
}

// close is shutdown within closeTimeout. It does nothing without a listener.
func (f *routerHTTP) close() {
	if f == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_ = f.shutdown(ctx)
}

// shutdown ends accepting, waits for requests in flight until ctx ends, and for the goroutine.
func (f *routerHTTP) shutdown(ctx context.Context) error {
	err := f.httpServer.Shutdown(ctx)
	if err != nil {
		_ = f.httpServer.Close()
	}
	<-f.done
	return err
}

// routerServer is a server that shuts the HTTP listener of the router down, too.
type routerServer struct {
	runningServer
	http *routerHTTP
}

// Shutdown shuts both down at the same time.
func (s routerServer) Shutdown(ctx context.Context) error {
	ended := make(chan error, 1)
	go func() { ended <- s.http.shutdown(ctx) }()
	err := s.runningServer.Shutdown(ctx)
	return errors.Join(err, <-ended)
}
