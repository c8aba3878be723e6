package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hitline/hitline/cmd/hitline/internal/config"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup/server"
)

// reloadGrace bounds how long the end of serve waits for a reload, which may hang in a file of a
// remote file system.
const reloadGrace = time.Second

// reloadable is the part of a started server.Server that a reload uses.
type reloadable interface {
	SetListener(address string, settings server.Settings) error
	SetLimits(limits server.Limits) error
	AddPool(pool server.NamedPool) error
}

// reloader reads the configuration of a server again: all of it at a signal, the files of its
// listeners when they change. It belongs to one goroutine, except drain.
type reloader struct {
	source    config.Source
	cfg       *config.Config // what is in effect
	listeners []listener     // that are bound, in the order of cfg.Listen
	services  *poolServices
	srv       reloadable
	log       *logSettings
	logger    *slog.Logger
	watch     fileWatch
	failed    map[string]string // what was logged at the last poll, by address
	drain     atomic.Int64      // drain_timeout in nanoseconds
	indexed   int64             // bytes that the memory indexes may take
}

// newReloader returns that of a server which runs as r says.
func newReloader(r *running, srv reloadable) *reloader {
	l := &reloader{source: r.source, cfg: r.cfg, listeners: r.listeners, services: r.services, srv: srv, log: r.log, logger: r.logger}
	l.watch.take(r.versions)
	l.drain.Store(int64(r.cfg.DrainTimeout))
	l.indexed = int64(r.cfg.Backend.Memory.MaxBytes)
	return l
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
	if r.services.store == nil && len(c.pools) > 0 && c.indexed > c.most {
		r.logger.Warn("until a restart the memory of the added pools comes on top of that of the others",
			"bytes", c.indexed, "backend.memory.max_bytes", c.most)
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
	pools         []server.NamedPool // that are added
	indexed       int64              // bytes that the memory indexes may take with them
	most          int64              // that they should, by the configuration as it was read
	listeners     []listener
	differing     []listener // those of listeners whose settings differ
	read          []readListener
	versions      fileVersions
	changed, left []string // paths of fields, and of files
}

// prepare reads everything and changes nothing.
func (r *reloader) prepare() (*change, error) {
	next, err := r.load()
	if err != nil {
		return nil, err
	}
	c := &change{}
	c.cfg, c.changed, c.left = r.cfg.Merge(next)
	if c.pools, err = r.services.added(r.cfg, next); err != nil {
		return nil, err
	}
	c.indexed = r.indexed + int64(len(c.pools))*indexConfig(next).MaxBytes
	c.most = int64(next.Backend.Memory.MaxBytes)
	for _, l := range r.listeners {
		if j := next.FindListener(l.entry().Address); j >= 0 {
			l = listener{next, j}
		}
		c.listeners = append(c.listeners, l)
	}
	c.versions = readVersions(filesOf(c.listeners))
	for path, v := range c.versions {
		if before, known := r.watch.taken[path]; known && before.digest != v.digest {
			c.changed = append(c.changed, path)
		}
	}
	slices.Sort(c.changed)
	for i, l := range c.listeners {
		if r.differs(i, l, c.versions) {
			c.differing = append(c.differing, l)
		}
	}
	c.read, err = readListeners(c.differing)
	return c, err
}

// load reads the configuration. It refuses what cannot be read twice, such as a pipe.
func (r *reloader) load() (*config.Config, error) {
	if path := r.source.File; path != "" {
		if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
			return nil, fmt.Errorf("cannot read the configuration again: %s is not a regular file", path)
		}
	}
	return config.Load(r.source)
}

// differs reports whether the settings of the i-th listener are others by l.
func (r *reloader) differs(i int, l listener, versions fileVersions) bool {
	if !reflect.DeepEqual(l.entry(), r.listeners[i].entry()) {
		return true
	}
	return slices.ContainsFunc(l.entry().Files(), func(path string) bool { return versions[path].digest != r.watch.taken[path].digest })
}

// apply puts c into effect. What can fail is first.
func (r *reloader) apply(c *change) error {
	for _, pool := range c.pools {
		if err := r.srv.AddPool(pool); err != nil {
			return fmt.Errorf("pools.%s: %w", pool.Name, err)
		}
		r.keepPool(pool.Name, c)
	}
	if c.cfg.Limits != r.cfg.Limits {
		if err := r.srv.SetLimits(serverLimits(c.cfg.Limits)); err != nil {
			return fmt.Errorf("limits: %w", err)
		}
	}
	for _, l := range c.read {
		if err := r.srv.SetListener(l.Address, l.Settings); err != nil {
			return err
		}
	}
	r.log.set(c.cfg.Log)
	r.drain.Store(int64(c.cfg.DrainTimeout))
	r.cfg, r.listeners, r.failed, r.indexed = c.cfg, c.listeners, nil, c.indexed
	r.watch.take(c.versions)
	return nil
}

// keepPool records that a pool is added: it stays even if the next one cannot be.
func (r *reloader) keepPool(name string, c *change) {
	kept := *r.cfg
	if kept.Pools = maps.Clone(kept.Pools); kept.Pools == nil {
		kept.Pools = map[string]coordinator.Pool{}
	}
	kept.Pools[name] = c.cfg.Pools[name]
	r.cfg = &kept
}

// poll reads the files that have changed, and puts the settings of their listeners into effect.
// A listener with a file that is wrong keeps its settings; the line that says so is not repeated.
func (r *reloader) poll() {
	changed, changing, versions := r.watch.poll()
	failed, done := map[string]string{}, slices.Clone(changed)
	for _, l := range r.listeners {
		ours := func(path string) bool { return slices.Contains(l.entry().Files(), path) }
		if !slices.ContainsFunc(changed, ours) {
			continue
		}
		err := errChanging
		if !slices.ContainsFunc(changing, ours) {
			err = r.reread(l, versions)
		}
		if err != nil {
			done = slices.DeleteFunc(done, ours)
			if !errors.Is(err, errChanging) {
				failed[l.entry().Address] = err.Error()
			}
		}
	}
	for address, text := range failed {
		if r.failed[address] != text {
			r.logger.Error(notReloaded, "listen", address, "error", text)
		}
	}
	r.failed = failed
	for _, path := range done {
		r.watch.taken[path] = versions[path]
	}
	if len(done) > 0 {
		r.logger.Info("reloaded", "changed", done)
	}
}

// errChanging says that a file of a listener is changing: the next polls find it.
var errChanging = errors.New("a file is changing")

// reread puts the settings of l into effect that are read from files of these versions.
func (r *reloader) reread(l listener, versions fileVersions) error {
	read, err := l.read()
	if !versions.areCurrent() {
		return errChanging
	}
	if err == nil {
		err = r.srv.SetListener(read.Address, read.Settings)
	}
	if err == nil {
		r.warn(read)
	}
	return err
}
