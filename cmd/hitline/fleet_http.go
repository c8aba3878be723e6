package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/hitline/hitline/lookup/access"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/holders/httpapi"
	"github.com/hitline/hitline/lookup/metrics"
	"github.com/hitline/hitline/lookup/server"
)

// maxFleetConns bounds the HTTP connections of routers. Each takes a file descriptor; further ones close those that
// wait for a request.
const maxFleetConns = 1024

// fleetConns returns how many of them may be open with a limit of open files: half of what limits.max_connections leaves,
// a quarter, so that routers do not keep out the clients of listen.
func fleetConns(openFiles uint64) int {
	return int(max(1, min(maxFleetConns, openFiles/8)))
}

// openFileLimit returns the limit of open files, a high one if it cannot be told.
func openFileLimit() uint64 {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 1 << 20
	}
	return limit.Cur
}

// fleetHTTP serves who holds what over HTTP.
type fleetHTTP struct {
	*metrics.FleetHTTP
	logger     *slog.Logger
	httpServer *http.Server
	listener   net.Listener
	settings   atomic.Pointer[server.Settings] // in effect; the Rules are not nil
	loaded     atomic.Bool                     // before, only health and readiness are answered
	done       chan struct{}                   // closed when the goroutine that serves has returned
}

// openFleetHTTP binds fleet.listen and serves in the background until close or shutdown. It returns nil if there is no
// address.
func (r *running) openFleetHTTP(srv *server.Server) (*fleetHTTP, error) {
	if r.cfg.Fleet.Listen == nil {
		return nil, nil
	}
	read := r.read[len(r.read)-1] // see listenersOf
	_, address, err := api.SplitAddress(read.Address)
	if err != nil {
		return nil, r.cfg.Blame("fleet.listen", err)
	}
	f := &fleetHTTP{logger: r.logger, done: make(chan struct{})}
	f.setSettings(read.Settings)
	if f.listener, err = net.Listen("tcp", address); err != nil {
		return nil, configError(fmt.Errorf("cannot listen for fleet: %w", err))
	}
	handler := httpapi.New(httpapi.Config{
		Service: r.fleet, Authorize: httpapi.ByRules(func() *access.Rules { return f.settings.Load().Rules }), Local: r.cfg.Fleet.Listen.IsLocal(),
		Configure: r.completeSource, Dump: r.fleet.DumpHandler(), Ready: srv.Ready, Logger: r.logger,
	})
	f.FleetHTTP = metrics.NewFleetHTTP(f.whenLoaded(handler), handler.Requests, httpapi.Paths())
	f.httpServer = newHTTPServer(f.FleetHTTP, r.logger)
	f.httpServer.ReadTimeout, f.httpServer.WriteTimeout = 0, 0 // the handler has its own
	var listener net.Listener = newEvictingListener(f.listener, fleetConns(openFileLimit()))
	if read.Settings.TLS != nil {
		listener = tls.NewListener(listener, &tls.Config{
			MinVersion:         tls.VersionTLS13,
			GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return f.settings.Load().TLS, nil },
		})
	}
	go func() {
		defer close(f.done)
		if err := f.httpServer.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			r.logger.Error("fleet.listen is no longer served", "error", err)
		}
	}()
	return f, nil
}

// setSettings puts settings of the listener into effect: for new connections, and for new requests of all.
func (f *fleetHTTP) setSettings(settings server.Settings) {
	if settings.Rules == nil { // on loopback, without any that are configured
		settings.Rules, _ = access.NewRules(access.All, nil) // cannot fail: no credential
	}
	f.settings.Store(&settings)
}

// address returns the bound address.
func (f *fleetHTTP) address() string { return f.listener.Addr().String() }

// whenLoaded refuses what would be answered wrongly until the server knows what its peers know.
func (f *fleetHTTP) whenLoaded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f.loaded.Load() || r.URL.Path == "/health" || r.URL.Path == "/ready" {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, `{"error":{"code":"not_ready","message":"the server is starting"}}`+"\n") // the client may be gone
	})
}

// setLoaded says that everything can be answered.
func (f *fleetHTTP) setLoaded() {
	if f != nil {
		f.loaded.Store(true)
	}
}

// close is shutdown within closeTimeout. It does nothing without a listener.
func (f *fleetHTTP) close() {
	if f == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_ = f.shutdown(ctx)
}

// shutdown ends accepting, waits for requests in flight until ctx ends, and for the goroutine.
func (f *fleetHTTP) shutdown(ctx context.Context) error {
	err := f.httpServer.Shutdown(ctx)
	if err != nil {
		_ = f.httpServer.Close()
	}
	<-f.done
	return err
}

// fleetServer is a server that shuts the HTTP listener of the fleet down, too.
type fleetServer struct {
	runningServer
	http *fleetHTTP
}

// Shutdown shuts both down at the same time.
func (s fleetServer) Shutdown(ctx context.Context) error {
	ended := make(chan error, 1)
	go func() { ended <- s.http.shutdown(ctx) }()
	err := s.runningServer.Shutdown(ctx)
	return errors.Join(err, <-ended)
}
