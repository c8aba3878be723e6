package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hitline/hitline/cmd/hitline/internal/config"
	"github.com/hitline/hitline/cmd/hitline/internal/status"
	"github.com/hitline/hitline/cmd/internal/cli"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/buildinfo"
	"github.com/hitline/hitline/internal/cpushare"
	"github.com/hitline/hitline/internal/httpguard"
	"github.com/hitline/hitline/internal/requesterror"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/server"
	"github.com/hitline/hitline/router"
	"github.com/hitline/hitline/router/hicache"
	"github.com/hitline/hitline/router/httpapi"
	routermetrics "github.com/hitline/hitline/router/metrics"
	"github.com/hitline/hitline/simd"
)

// newServeCmd returns the command that runs the service.
func newServeCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the lookup service",
		Long: `serve answers lookups until it is told to stop. It reads its configuration from
a YAML file, then from variables (HITLINE_POOL_TP_SIZE is pool.tp_size), then
from flags. It logs one line "ready" with the bound addresses.

SIGTERM and SIGINT stop it, after drain_delay, once requests in flight are
answered, or drain_timeout is over; a second signal, a second later, stops it at
once. It reads its configuration again at SIGHUP and when the file changes, and
logs which fields need a restart; files of tokens and certificates likewise.`,
		Example: "  hitline serve --block-size 16\n  hitline serve --config hitline.yaml --check",
		Args:    cli.NoArgs,
	}
	check := cmd.Flags().Bool("check", false, "check the configuration, print it, and exit")
	owner := ownerFlags(cmd)
	source := configFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		src, err := source()
		switch {
		case err != nil:
			return err
		case owner.removeDir != "" && !owner.exitOnEOF:
			return usagef("--remove-dir is of no use without --exit-on-stdin-eof")
		}
		if !*check {
			defer owner.follow(cmd)()
		}
		return serve(cmd, src, *check)
	}
	return cmd
}

// configFlags defines the flags that configure serve. The function that it returns reads
// them, after parsing.
func configFlags(cmd *cobra.Command) func() (config.Source, error) {
	var file, backendName, release string
	var listen []string
	var loops, blockSize int
	cli.FlagGroup(cmd.Flags(), "Configuration", func(f *pflag.FlagSet) {
		f.StringVar(&file, "config", "", "YAML `file` to read (default none)")
		f.StringArrayVar(&listen, "listen", nil, "`address` to listen on; repeatable; replaces listen of the file (default "+api.DefaultListen+")")
		f.IntVar(&loops, "loops", 0, "`number` of event loops (default GOMAXPROCS)")
		f.IntVar(&blockSize, "block-size", 0, "`tokens` of a block, in one full-attention group (default 16)")
		f.StringVar(&release, "vllm", "", "`release` of the engines' vLLM (default none: the rules of 0.24.0)")
		f.StringVar(&backendName, "backend", "", "`name` of the backend: memory, redis or mooncake")
	})
	cli.Complete(cmd, "backend", config.BackendNames()...)
	cli.Complete(cmd, "vllm", coordinator.Releases()...)
	return func() (config.Source, error) {
		src := config.Source{File: file, Environ: os.Environ()}
		src.Flags.Listen = listen
		src.Flags.Loops = flagValue(cmd, "loops", &loops)
		src.Flags.BlockSize = flagValue(cmd, "block-size", &blockSize)
		src.Flags.VLLM = flagValue(cmd, "vllm", &release)
		src.Flags.Backend = flagValue(cmd, "backend", &backendName)
		if cmd.Flags().Changed("config") && file == "" {
			return src, usagef("--config names no file")
		}
		return src, nil
	}
}

// flagValue returns value if its flag is on the command line, otherwise nil.
func flagValue[T any](cmd *cobra.Command, flag string, value *T) *T {
	if cmd.Flags().Changed(flag) {
		return value
	}
	return nil
}

// serve runs the service that src describes, or only checks the configuration.
func serve(cmd *cobra.Command, src config.Source, check bool) error {
	if err := simd.ForceFromEnv(); err != nil {
		return configError(err)
	}
	// Before the configuration is read: a change behind it is not missed, and the signal ends no
	// server that starts.
	hangups := make(chan os.Signal, 1) // several that wait mean the same as one
	if !check {
		signal.Notify(hangups, syscall.SIGHUP)
		defer signal.Stop(hangups)
	}
	file := watchFile(src.File)
	cfg, err := config.Load(src)
	if err != nil {
		return configError(err)
	}
	logger, level := slog.New(slog.DiscardHandler), new(slog.LevelVar)
	level.Set(logLevel(cfg.Log.Level))
	if !check {
		var closeLog func()
		logger, closeLog = openLog(cmd.ErrOrStderr(), cfg.Log.Format, level)
		defer closeLog()
	}
	store, err := openStore(cfg, logger)
	if err != nil {
		return configError(err)
	}
	err = serveFrom(cmd, &running{source: src, file: file, cfg: cfg, hangups: hangups, store: store, cpu: cpushare.Half(), level: level, logger: logger}, check)
	if store != nil && !errors.Is(err, errSecondSignal) {
		if err := store.Close(); err != nil {
			logger.Warn("the store was not closed well", "backend", store.Name(), "error", err.Error())
		}
	}
	return err
}

// serveFrom runs the service of r over its store, or only checks the configuration.
func serveFrom(cmd *cobra.Command, r *running, check bool) error {
	cfg, store, logger := r.cfg, r.store, r.logger
	rules, err := coordinator.New(cfg.Pool)
	if err != nil {
		return configError(cfg.WithOrigin("pool", err))
	}
	r.services = newPoolServices(cfg, store, logger)
	if r.service, err = r.services.defaultPool(); err != nil {
		return configError(err)
	}
	if r.named, err = r.services.namedPools(); err != nil {
		return configError(err)
	}
	r.listeners = listenersOf(cfg)
	if r.read, err = readListeners(r.listeners); err != nil {
		return configError(err)
	}
	if r.router, err = r.newRouter(); err != nil {
		return configError(err)
	}
	defer r.closeRouter()
	var warnings []string
	for _, warning := range rules.Warnings() {
		warnings = append(warnings, "pool."+warning)
	}
	for _, named := range r.named {
		for _, warning := range named.Service.Coordinator().Warnings() {
			warnings = append(warnings, "pools."+named.Name+"."+warning)
		}
	}
	warnings = append(warnings, memoryWarnings(cfg, store, machineMemory())...)
	for _, l := range r.read {
		warnings = append(warnings, l.warnings...)
	}
	warnings = append(warnings, cfg.Warnings(r.source.File)...)
	if check {
		for _, warning := range warnings {
			cmd.PrintErrf("hitline: warning: %s\n", warning)
		}
		return printConfig(cmd, cfg)
	}
	for _, warning := range warnings {
		logger.Warn(warning)
	}
	if r.sockets, err = takePassedSockets(cmd.Context(), cfg); err != nil {
		return configError(err)
	}
	defer r.sockets.close()
	return r.run(cmd.Context())
}

// printConfig writes the configuration in effect as YAML that serve can read.
func printConfig(cmd *cobra.Command, cfg *config.Config) error {
	text, err := cfg.YAML()
	if err != nil {
		return fmt.Errorf("cannot print the configuration: %w", err)
	}
	return cli.PrintResult(cmd, false, nil, strings.TrimSuffix(string(text), "\n"))
}

// serverLimits translates the limits for the server. Its memory is that of a memoryAccount.
func serverLimits(l config.Limits) server.Limits {
	return server.Limits{
		MaxMessage:       int64(l.MaxMessage),
		MaxHashes:        l.MaxHashes,
		MaxConnections:   l.MaxConnections,
		MaxInFlight:      l.MaxInFlight,
		WriteTimeout:     time.Duration(l.WriteTimeout),
		HandshakeTimeout: time.Duration(l.HandshakeTimeout),
		MessageTimeout:   time.Duration(l.MessageTimeout),
		IdleTimeout:      time.Duration(l.IdleTimeout),
	}
}

// running is a server with what it serves.
type running struct {
	source    config.Source
	file      watchedFile // of source
	cfg       *config.Config
	listeners []listener
	read      []readListener   // of listeners
	level     *slog.LevelVar   // of logger
	hangups   <-chan os.Signal // each means to reload
	sockets   passedSockets

	store     *remoteStore // nil for the memory backend
	storeSeen atomic.Bool  // whether it answers is known
	services  *poolServices
	service   *lookup.Service // of its own pool, nil if it has none
	named     []server.ServedPool
	router    *router.Service // nil if none is configured
	hicaches  []*hicache.Pool // of its models
	// routerSettings are those of router.listen in effect: for new connections, and for new requests of all. nil: it is
	// not served.
	routerSettings atomic.Pointer[server.Settings]
	cpu            *cpushare.Share // what HTTP, handshakes of TLS and sources of events compute on
	logger         *slog.Logger
}

// run serves until a signal, the end of ctx, or a failure.
func (r *running) run(ctx context.Context) error {
	// Before anything is bound, so that no signal is missed.
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(signals)
	// The reader of the log may end first. That must not end the server.
	signal.Ignore(syscall.SIGPIPE)
	defer signal.Reset(syscall.SIGPIPE)

	limitGoMemory(r.cfg, r.store)
	srv, err := r.newServer()
	if err != nil {
		return configError(err)
	}
	routerSrv := &routerHTTP{} // without router.listen
	var readyAttrs []any
	if r.cfg.Router.Listen != nil {
		if routerSrv, err = r.openRouterHTTP(srv); err != nil {
			return err
		}
		defer routerSrv.close()
		readyAttrs = []any{"router", routerSrv.address}
	}
	collector := status.NewCollector(srv, r.router, r.logger)
	defer background(collector.Run)()
	if r.cfg.Metrics != "" {
		listener, err := r.sockets.listen(config.MetricsPath, r.cfg.Metrics)
		if err != nil {
			return fmt.Errorf("metrics: %w", listenError(err, "give another address"))
		}
		e := openEndpoints(listener, srv, r.endpointOptions(collector, routerSrv.handler), r.logger)
		defer e.close() // after draining, during which /readyz is not ready
		readyAttrs = append(readyAttrs, "metrics", e.address)
	}
	storeSeen := make(chan struct{})
	if r.store == nil {
		close(storeSeen)
	} else {
		readyAttrs = append(readyAttrs, "store", r.store.String())
		defer background(func(ctx context.Context) { // clients of a server before this one wait for the listeners
			defer close(storeSeen)
			r.store.logState(ctx, r.services.shared, r.logger)
			r.storeSeen.Store(true)
		})()
	}
	load := func(ctx context.Context) error { return r.startRouter(ctx, srv) }
	if stopped, err := untilSignal(ctx, load, signals, r.logger); stopped || err != nil {
		return err
	}
	if err := startServer(ctx, srv); err != nil {
		return err
	}
	routerSrv.loaded.Store(true)
	<-storeSeen
	logAccess(r.listeners, r.logger)
	r.logEmptyIndex()
	r.logger.Info("ready", append(r.poolAttrs(srv.Addrs()), readyAttrs...)...)

	reloads := newReloader(r, srv)
	reloads.router = &r.routerSettings
	defer reloads.start(r.hangups)()
	return wait(ctx, startedServer{srv, routerSrv.httpServer, collector}, signals, reloads.stopTimes, r.logger)
}

// logEmptyIndex says that nothing is found yet, if a pool is over memory: who starts a server for an engine may wonder
// why no lookup hits.
func (r *running) logEmptyIndex() {
	if r.store != nil || r.isRouterAlone() {
		return
	}
	r.logger.Info("the index is empty: every lookup is a hit of 0 until clients store blocks; for what engines keep in a store, configure backend.mooncake or backend.redis")
}

// isRouterAlone reports whether only the router is configured.
func (r *running) isRouterAlone() bool { return r.cfg.Router.IsServed() && !r.cfg.HasPool() }

// background calls f on a goroutine of its own. stop ends its context, and waits for it.
func background(f func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { f(ctx) })
	return func() {
		cancel()
		running.Wait()
	}
}

func startServer(ctx context.Context, srv *server.Server) error {
	err := srv.Start(ctx)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return fmt.Errorf("stopped before it was ready: %w", cause)
	}
	if err != nil {
		return listenError(err, "--listen takes another")
	}
	return nil
}

// newServer returns the lookup server.
func (r *running) newServer() (*server.Server, error) {
	firstLook, secondLook, err := lookTimes()
	if err != nil {
		return nil, err
	}
	return server.New(r.service, server.Config{
		Listeners:        r.serverListeners(),
		OtherConnections: r.otherConnections(), IPCMode: fs.FileMode(r.cfg.IPCMode), Loops: r.cfg.Loops, Limits: serverLimits(r.cfg.Limits),
		Pools: r.named, AcceptPool: r.services.accept(), MaxPools: r.cfg.MaxPools, Backend: r.services.shared, Memory: r.services.memory, CPU: r.cpu,
		AccountBytes: accountBytes(r.cfg.Limits.MaxAccount), FirstLook: firstLook, SecondLook: secondLook,
		Ready: r.ready, Version: buildinfo.Read().Version, Logger: r.logger,
	})
}

// lookTimes returns server.Config.FirstLook and SecondLook: tests shorten them, such as HITLINE_TEST_LOOKS=2s,10s.
func lookTimes() (first, second time.Duration, err error) {
	const name = "HITLINE_TEST_LOOKS"
	text := os.Getenv(name)
	if text == "" {
		return 0, 0, nil
	}
	one, two, _ := strings.Cut(text, ",")
	if first, err = time.ParseDuration(one); err == nil {
		second, err = time.ParseDuration(two)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("%w: %s is %q, not two durations: %w", api.ErrConfig, name, text, err)
	}
	return first, second, nil
}

// otherConnections returns how many connections the HTTP listeners may have.
func (r *running) otherConnections() (n int) {
	files := server.OpenFileLimit()
	if r.cfg.Metrics != "" {
		n += httpConns(maxMetricsConns, files)
	}
	if r.cfg.Router.Listen != nil {
		n += httpConns(maxRouterConns, files)
	}
	return n
}

// endpointOptions returns what is served with the metrics. requests, that of the router's HTTP, may be nil.
func (r *running) endpointOptions(collector *status.Collector, requests *httpapi.Handler) endpointOptions {
	options := endpointOptions{
		pprof: r.cfg.Pprof, cpu: r.cpu, status: collector,
		guard: httpguard.Guard{Local: r.cfg.MetricsIsLocal(), Hosts: r.cfg.HTTPHosts},
	}
	if r.router != nil {
		options.collectors = append(options.collectors, &routermetrics.Collector{Models: r.router.Models, Sources: r.router.Status})
	}
	if requests != nil {
		options.collectors = append(options.collectors, requests)
	}
	return options
}

// poolAttrs returns the attributes of the ready line.
func (r *running) poolAttrs(addrs []string) []any {
	attrs := []any{"listen", addrs, "version", buildinfo.Read().Version}
	if r.service != nil && !r.isRouterAlone() {
		attrs = append(attrs, "vllm", r.cfg.Pool.FittingReleases())
		if r.cfg.Pool.VLLM == "" {
			attrs = append(attrs, "note", "no release is given: set pool.vllm, or --vllm, to that of the engines")
		}
	}
	if len(r.named) > 0 {
		attrs = append(attrs, "pools", slices.Sorted(maps.Keys(r.cfg.Pools)))
	}
	if r.cfg.Accepts() {
		attrs = append(attrs, "accept_pools", true)
	}
	return append(attrs, "backend", r.cfg.Backend.Name(), "kernel", simd.Kernel())
}

// runningServer is the part of a started server.Server that wait uses.
type runningServer interface {
	Done() <-chan struct{}
	Err() error
	Drain(ctx context.Context, delay time.Duration)
	Shutdown(ctx context.Context) error
}

// startedServer is a server with what else is shut down.
type startedServer struct {
	*server.Server
	router *httpServer // nil without router.listen
	status *status.Collector
}

// Shutdown shuts the server and the router's HTTP down at the same time, for which ctx is the bound, and logs what was counted.
func (s startedServer) Shutdown(ctx context.Context) error {
	ended := make(chan error, 1)
	go func() { ended <- requesterror.Call(func() error { return s.router.shutdown(ctx) }) }()
	err := errors.Join(s.Server.Shutdown(ctx), <-ended)
	if !errors.Is(ctx.Err(), context.Canceled) { // by a second signal
		s.status.LogEnd()
	}
	return err
}

// stopTimes are how long a stop may take.
type stopTimes struct {
	delay   time.Duration // drain_delay
	timeout time.Duration // drain_timeout, which begins after the delay
}

// stop stops srv. A part of the timeout is left for those who have something unanswered when ZMTP connections have had
// their time.
func (t stopTimes) stop(ctx context.Context, srv runningServer) error {
	ctx, cancel := context.WithTimeout(ctx, t.delay+t.timeout)
	defer cancel()
	draining, end := context.WithTimeout(ctx, t.delay+t.timeout-min(time.Second, t.timeout/2))
	srv.Drain(draining, t.delay)
	end()
	return srv.Shutdown(ctx)
}

// wait waits until a signal, the end of ctx, or the end of srv. It stops srv within what
// times then returns, and returns nil. It returns an error if srv has stopped by itself, or
// if a second signal comes. After the end of ctx it ignores signals.
func wait(ctx context.Context, srv runningServer, signals <-chan os.Signal, times func() stopTimes, logger *slog.Logger) error {
	var why string
	select {
	case s := <-signals:
		why = s.String()
	case <-ctx.Done():
		why = context.Cause(ctx).Error()
		signals = nil // a signal after this is not a second one
	case <-srv.Done():
		if err := srv.Err(); err != nil {
			return fmt.Errorf("the server stopped by itself: %w", err)
		}
		return errors.New("the server stopped by itself, for no known reason")
	}
	first := time.Now() // before the log line, after which a second signal may be sent
	t := times()
	logger.Info("stopping", "why", why, "drain_delay", t.delay.String(), "drain_timeout", t.timeout.String())

	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // ctx may have ended
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- requesterror.Call(func() error { return t.stop(ctx, srv) }) }()
	err, second := untilSecond(first, done, signals)
	switch {
	case second != nil:
		return second
	case err != nil: // a client that stays connected is no failure
		logger.Warn("stopped before all requests were answered", "error", err.Error())
	}
	logger.Info("stopped")
	return nil
}

// errSecondSignal is the class of an end by a second signal, which does not wait for the store
// to close.
var errSecondSignal = errors.New("stopped at once")

// signalGrace is how long after the first signal others do not count: timeout(1) sends two in a row, to the process
// and to its group, and so does a program that forwards what the terminal has sent to both.
const signalGrace = time.Second

// untilSecond waits after a signal that came at first for the result of what it stops. It returns an errSecondSignal if
// a signal comes signalGrace after that one or later.
func untilSecond(first time.Time, done <-chan error, signals <-chan os.Signal) (result, second error) {
	for {
		select {
		case result = <-done:
			return result, nil
		case s := <-signals:
			if time.Since(first) >= signalGrace {
				return nil, cli.WithClass(fmt.Errorf("stopped at once by a second signal (%v); requests may be unanswered", s), errSecondSignal)
			}
		}
	}
}

// untilSignal runs load, which is done before the server is ready. A signal stops it, and is logged. It returns an error
// if load fails, or if a second signal comes while load does not stop.
func untilSignal(ctx context.Context, load func(context.Context) error, signals <-chan os.Signal, logger *slog.Logger) (stopped bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	loaded := make(chan error, 1)
	go func() { loaded <- requesterror.Call(func() error { return load(ctx) }) }()
	select {
	case err := <-loaded:
		return false, err
	case s := <-signals:
		first := time.Now()
		logger.Info("stopping", "why", s.String())
		cancel()
		if _, second := untilSecond(first, loaded, signals); second != nil {
			return true, second
		}
		logger.Info("stopped")
		return true, nil
	}
}
