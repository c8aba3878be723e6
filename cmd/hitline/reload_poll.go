package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hitline/hitline/cmd/hitline/internal/config"
	"github.com/hitline/hitline/lookup/server"
)

// watchedListener is a listener with the parts of its settings that files give.
type watchedListener struct {
	listener
	settings server.Settings // in effect
	parts    []*watchedPart
}

// watchedPart is a part of a listener's settings. Each is read by itself, so that a wrong certificate does not keep a
// token from being revoked.
type watchedPart struct {
	of     *watchedListener
	watch  fileWatch
	files  []string
	failed string // what was logged at the last poll
	state  readState
	read   func() (config.Update, []string, error)
}

// watchListener returns a listener with settings in effect, whose files were read in these versions.
func watchListener(l listener, settings server.Settings, versions fileVersions) *watchedListener {
	w := &watchedListener{listener: l, settings: settings}
	for _, p := range config.Parts {
		files := l.entry().PartFiles(p)
		if len(files) == 0 {
			continue
		}
		taken := fileVersions{}
		for _, path := range files {
			taken[path] = versions[path]
		}
		w.parts = append(w.parts, &watchedPart{of: w, watch: watchFiles(taken), files: files, read: func() (config.Update, []string, error) {
			return l.readPart(p)
		}})
	}
	return w
}

// differing returns the paths of the files whose text is another in versions.
func (w *watchedListener) differing(versions fileVersions) []string {
	var paths []string
	for _, p := range w.parts {
		paths = append(paths, p.watch.differing(versions)...)
	}
	return paths
}

// poll begins to look at all files. Those that have changed are read, and put into effect once they are. A part whose
// files are wrong stays as it is; the line that says so is not repeated.
func (r *reloader) poll() {
	now := time.Now()
	if r.reload.isSlow(now) {
		r.logger.Error(notReloaded, "error", fmt.Sprintf("the configuration, or a file that it names, has not been read for %v", slowRead))
	}
	for _, l := range r.listeners {
		for _, p := range l.parts {
			switch {
			case p.state.since.IsZero():
				r.begin(&p.state, func() reading { return r.look(p, p.watch) })
			case p.state.isSlow(now):
				r.logger.Error(notReloaded, "listen", l.entry().Address,
					"error", fmt.Sprintf("not read for %v: %s", slowRead, strings.Join(p.files, ", ")))
			}
		}
	}
}

// look looks at the files of a part, in a goroutine of its own.
func (r *reloader) look(p *watchedPart, watch fileWatch) reading {
	next, changed, versions := watch.poll()
	if len(changed) == 0 {
		return func() { p.watch, p.failed = next, "" }
	}
	update, warnings, err := p.read()
	if !versions.areCurrent() {
		return func() { p.watch = next } // a file is changing: the next polls find it
	}
	return func() {
		p.watch = next
		if !slices.Contains(r.listeners, p.of) { // a reload has replaced it
			return
		}
		if err == nil {
			err = r.update(p.of, update)
		}
		if err != nil {
			if text := err.Error(); text != p.failed {
				r.logger.Error(notReloaded, "listen", p.of.entry().Address, "error", text)
				p.failed = text
			}
			return
		}
		r.epoch++
		r.warn(warnings)
		p.failed = ""
		p.watch = watchFiles(versions)
		slices.Sort(changed)
		r.logger.Info("reloaded", "changed", slices.Compact(changed))
	}
}

// update puts a part of a listener's settings into effect.
func (r *reloader) update(l *watchedListener, update config.Update) error {
	settings := l.settings
	update(&settings)
	if err := r.setListener(l.listener, settings); err != nil {
		return err
	}
	l.settings = settings
	return nil
}
