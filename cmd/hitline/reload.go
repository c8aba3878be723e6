package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hitline/hitline/cmd/hitline/internal/config"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/requesterror"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/server"
)

// reloadable is the part of a started server.Server that a reload uses.
type reloadable interface {
	SetListener(address string, settings server.Settings) error
	SetLimits(limits server.Limits) error
	SetPools(own *lookup.Service, named []server.ServedPool, accept func(coordinator.Pool) (*lookup.Service, error)) ([]server.GonePool, error)
	Pools() []server.ServedPool
}

// reloader reads the configuration of a server again: all of it at a signal and when its file changes, the files of its
// listeners when they change.
// It belongs to one goroutine, except stop.
type reloader struct {
	source    config.Source
	cfg       *config.Config // what is in effect
	file      watchedFile
	listeners []*watchedListener // that are bound, in the order of cfg.Listen
	pools     *servedPools
	srv       reloadable
	level     *slog.LevelVar // of logger
	logger    *slog.Logger
	router    *atomic.Pointer[server.Settings] // of router.listen; only used if listeners has its entry
	stop      atomic.Pointer[stopTimes]
}

// newReloader returns that of a server which runs as from says.
func newReloader(from *running, srv reloadable) *reloader {
	r := &reloader{
		source: from.source, cfg: from.cfg, srv: srv, level: from.level, logger: from.logger,
		file: from.file, pools: &servedPools{from.services, from.service, from.named},
	}
	for i, l := range from.listeners {
		r.listeners = append(r.listeners, watchListener(l, from.read[i].Settings, from.read[i].files))
	}
	r.setStopTimes()
	return r
}

// stopTimes returns the times that are in effect. It is safe for concurrent use.
func (r *reloader) stopTimes() stopTimes { return *r.stop.Load() }

func (r *reloader) setStopTimes() {
	r.stop.Store(&stopTimes{time.Duration(r.cfg.DrainDelay), time.Duration(r.cfg.DrainTimeout)})
}

// start reloads at each signal, and polls. stop ends that. It does not wait for a read that hangs in a remote file system.
func (r *reloader) start(signals <-chan os.Signal) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(pollInterval)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-signals:
				r.recovering(r.reload)
			case <-ticker.C:
				r.recovering(r.poll)
			}
		}
	}()
	return func() {
		cancel()
		select {
		case <-done:
		case <-time.After(closeTimeout):
		}
	}
}

// slowRead is how long files are read before the log says so: they may hang in a remote file system, and no token is
// revoked until then.
const slowRead = 5 * time.Second

// recovering calls f. A panic in it is logged.
func (r *reloader) recovering(f func()) {
	defer time.AfterFunc(slowRead, func() {
		r.logger.Error(notReloaded, "error", fmt.Sprintf("the configuration, or a file that it names, has not been read for %v", slowRead))
	}).Stop()
	if err := requesterror.Run(f); err != nil {
		r.logger.Error(notReloaded, "error", err.Error())
	}
}

// notReloaded is the line for a configuration or a file that changes nothing.
const notReloaded = "not reloaded"

// reload reads the configuration and all files, and puts into effect what can change. An error changes nothing.
func (r *reloader) reload() {
	r.file.taken = look(r.file.paths())
	next, err := config.Load(r.source)
	var files []readFiles
	var c *change
	if err == nil {
		files = readAll(r.listeners, next)
		c, err = r.prepare(next, files)
	}
	var gone []string
	if err == nil {
		gone, err = r.apply(c)
	}
	if err != nil {
		r.logger.Error(notReloaded, "error", err.Error())
		return
	}
	for _, f := range files {
		r.warn(f.warnings)
	}
	r.warn(next.Warnings(r.source.File))
	r.logReload(c, gone)
}

// logReload logs what a reload has changed, which pools are gone, and what it has left.
func (r *reloader) logReload(c *change, gone []string) {
	var differing []listener
	for _, l := range c.differing {
		differing = append(differing, l.listener)
	}
	logAccess(differing, r.logger)
	attrs := []any{"changed", c.changed}
	if len(gone) > 0 {
		attrs = append(attrs, "pools_gone", gone)
	}
	r.logger.Info("reloaded", attrs...)
	if len(c.left) > 0 {
		r.logger.Warn("some changes need a restart", "fields", c.left)
	}
}

// readFiles is what the files of a listener say in a configuration that has been read.
type readFiles struct {
	listener
	readListener
	err error
}

// readAll reads the files of listeners as they are in next.
func readAll(listeners []*watchedListener, next *config.Config) []readFiles {
	var all []readFiles
	for _, l := range listeners {
		f := readFiles{listener: l.in(next)}
		f.readListener, f.err = f.listener.read()
		all = append(all, f)
	}
	return all
}

func (r *reloader) warn(warnings []string) {
	for _, warning := range warnings {
		r.logger.Warn(warning)
	}
}

// change is what a reload puts into effect.
type change struct {
	cfg           *config.Config
	pools         *servedPools // nil if they stay
	listeners     []*watchedListener
	differing     []readFiles // of the listeners whose settings differ
	changed, left []string    // paths of fields, and of files
}

// prepare returns what changes, and changes nothing.
func (r *reloader) prepare(next *config.Config, files []readFiles) (*change, error) {
	c := &change{}
	c.cfg, c.changed, c.left = r.cfg.Merge(next)
	if !c.cfg.HasPoolsOf(r.cfg) {
		var err error
		if c.pools, err = r.pools.with(c.cfg); err != nil {
			return nil, err
		}
	}
	for i, before := range r.listeners {
		f := files[i]
		changed := before.differing(f.files)
		c.changed = append(c.changed, changed...)
		settings := before.settings
		if len(changed) > 0 || !reflect.DeepEqual(f.entry(), before.entry()) {
			if f.err != nil {
				return nil, f.err
			}
			c.differing, settings = append(c.differing, f), f.Settings
		}
		c.listeners = append(c.listeners, watchListener(f.listener, settings, f.files))
	}
	slices.Sort(c.changed)
	c.changed = slices.Compact(c.changed)
	return c, nil
}

// apply puts c into effect.
func (r *reloader) apply(c *change) (gone []string, err error) {
	if gone, err = r.applyPools(c); err != nil {
		return nil, err
	}
	for _, l := range c.differing {
		if err := r.setListener(l.listener, l.Settings); err != nil {
			return nil, err
		}
	}
	if err := r.applyLimits(c); err != nil {
		return nil, err
	}
	r.level.Set(logLevel(c.cfg.Log.Level))
	r.cfg, r.listeners = c.cfg, c.listeners
	r.setStopTimes()
	return gone, nil
}

// setListener puts the settings of a listener into effect.
func (r *reloader) setListener(l listener, settings server.Settings) error {
	if l.index == routerListener {
		r.router.Store(&settings)
		return nil
	}
	return r.srv.SetListener(l.entry().Address, settings)
}
