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
	"github.com/hitline/hitline/lookup/server"
)

// reloadGrace bounds how long the end of serve waits for a reload, which may hang in a file of a
// remote file system.
const reloadGrace = time.Second

// reloadable is the part of a started server.Server that a reload uses.
type reloadable interface {
	SetListener(address string, settings server.Settings) error
	SetLimits(limits server.Limits) error
	AddPool(pool server.ServedPool) error
}

// reloader reads the configuration of a server again: all of it at a signal, the files of its
// listeners when they change. It belongs to one goroutine, except drain.
type reloader struct {
	source    config.Source
	cfg       *config.Config    // what is in effect
	listeners []watchedListener // that are bound, in the order of cfg.Listen
	services  *poolServices
	srv       reloadable
	level     *slog.LevelVar // of logger
	logger    *slog.Logger
	router    *atomic.Pointer[server.Settings] // of router.listen; only used if listeners has its entry
	drain     atomic.Int64                     // drain_timeout in nanoseconds
	indexed   int64                            // bytes that the memory indexes may take
}

// watchedListener is a listener with its files.
type watchedListener struct {
	listener
	watch  fileWatch
	failed string // what was logged at the last poll
}

func watchListener(l listener, versions fileVersions) watchedListener {
	w := watchedListener{listener: l}
	w.watch.take(versions)
	return w
}

// newReloader returns that of a server which runs as from says.
func newReloader(from *running, srv reloadable) *reloader {
	r := &reloader{source: from.source, cfg: from.cfg, services: from.services, srv: srv, level: from.level, logger: from.logger}
	for i, l := range from.listeners {
		r.listeners = append(r.listeners, watchListener(l, from.read[i].versions))
	}
	r.drain.Store(int64(from.cfg.DrainTimeout))
	r.indexed = int64(from.cfg.Backend.Memory.MaxBytes)
	return r
}

// drainTimeout returns the time that is in effect. It is safe for concurrent use.
func (r *reloader) drainTimeout() time.Duration { return time.Duration(r.drain.Load()) }

// start reloads at each signal, and polls. stop ends that, and waits for it at most reloadGrace.
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
				r.reload()
			case <-ticker.C:
				r.poll()
			}
		}
	}()
	return func() {
		cancel()
		select {
		case <-done:
		case <-time.After(reloadGrace):
		}
	}
}

// notReloaded is the line for a configuration or a file that changes nothing.
const notReloaded = "not reloaded"

// reload reads the configuration and all files, and puts into effect what can change. An error
// changes nothing.
func (r *reloader) reload() {
	c, err := r.prepare()
	if err == nil {
		err = r.apply(c)
	}
	if err != nil {
		r.logger.Error(notReloaded, "error", err.Error())
		return
	}
	for _, l := range c.read {
		r.warn(l)
	}
	if r.services.store == nil && len(c.pools) > 0 && r.indexed > c.most {
		r.logger.Warn("until a restart the memory of the added pools comes on top of that of the others",
			"bytes", r.indexed, "backend.memory.max_bytes", c.most)
	}
	logAccess(c.differing, r.logger)
	r.logger.Info("reloaded", "changed", c.changed)
	if len(c.left) > 0 {
		r.logger.Warn("some changes need a restart", "fields", c.left)
	}
}

func (r *reloader) warn(l readListener) {
	for _, warning := range l.warnings {
		r.logger.Warn(warning)
	}
}

// change is what a reload puts into effect.
type change struct {
	cfg           *config.Config
	pools         []server.ServedPool // that are added
	share         int64               // bytes that the memory index of each may take
	most          int64               // that all should, by the configuration as it was read
	listeners     []watchedListener
	differing     []listener     // those whose settings differ
	read          []readListener // of them
	changed, left []string       // paths of fields, and of files
}

// prepare reads everything and changes nothing.
func (r *reloader) prepare() (*change, error) {
	next, err := config.Load(r.source)
	if err != nil {
		return nil, err
	}
	c := &change{}
	c.cfg, c.changed, c.left = r.cfg.Merge(next)
	if c.pools, err = r.services.added(r.cfg, next); err != nil {
		return nil, err
	}
	c.share, c.most = indexConfig(next).MaxBytes, int64(next.Backend.Memory.MaxBytes)
	for _, before := range r.listeners {
		l := before.in(next)
		versions := readVersions(l.entry().Files())
		files := before.watch.differing(versions)
		c.changed = append(c.changed, files...)
		if len(files) > 0 || !reflect.DeepEqual(l.entry(), before.entry()) {
			read, err := l.read()
			if err != nil {
				return nil, err
			}
			c.differing, c.read, versions = append(c.differing, l), append(c.read, read), read.versions
		}
		c.listeners = append(c.listeners, watchListener(l, versions))
	}
	slices.Sort(c.changed)
	c.changed = slices.Compact(c.changed)
	return c, nil
}

// apply puts c into effect. A pool that the server does not take is left, as clients could otherwise
// keep all else from changing: by a pool of that name that they have described and use.
func (r *reloader) apply(c *change) error {
	if c.cfg.Limits != r.cfg.Limits {
		if err := r.srv.SetLimits(serverLimits(c.cfg.Limits)); err != nil {
			return fmt.Errorf("limits: %w", err)
		}
	}
	for i, l := range c.differing {
		if err := r.setListener(l, c.read[i]); err != nil {
			return err
		}
	}
	r.level.Set(logLevel(c.cfg.Log.Level))
	r.drain.Store(int64(c.cfg.DrainTimeout))
	r.cfg, r.listeners = c.cfg, c.listeners
	for _, pool := range c.pools {
		if err := r.srv.AddPool(pool); err != nil {
			r.logger.Error("pool not added", "pool", pool.Name, "error", err.Error())
			delete(r.cfg.Pools, pool.Name) // a copy of Merge
			c.changed = slices.DeleteFunc(c.changed, func(path string) bool { return path == "pools."+pool.Name })
			continue
		}
		r.indexed += c.share
	}
	return nil
}

// setListener puts the settings of a listener into effect.
func (r *reloader) setListener(l listener, read readListener) error {
	if l.index == routerListener {
		r.router.Store(&read.Settings)
		return nil
	}
	return r.srv.SetListener(read.Address, read.Settings)
}

// poll reads the files that have changed, and puts the settings of their listeners into effect.
// A listener with a file that is wrong keeps its settings; the line that says so is not repeated.
func (r *reloader) poll() {
	var done []string
	for i := range r.listeners {
		l := &r.listeners[i]
		changed, versions := l.watch.poll()
		if len(changed) == 0 {
			l.failed = ""
			continue
		}
		read, err := l.read()
		if !versions.areCurrent() {
			continue // a file is changing: the next polls find it
		}
		if err == nil {
			err = r.setListener(l.listener, read)
		}
		if err != nil {
			if text := err.Error(); text != l.failed {
				r.logger.Error(notReloaded, "listen", l.entry().Address, "error", text)
				l.failed = text
			}
			continue
		}
		r.warn(read)
		l.failed = ""
		l.watch.take(versions)
		done = append(done, changed...)
	}
	if len(done) > 0 {
		slices.Sort(done)
		r.logger.Info("reloaded", "changed", slices.Compact(done))
	}
}
