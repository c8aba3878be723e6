package main

import (
	"os"
	"slices"
	"time"

	"github.com/hitline/hitline/cmd/hitline/internal/config"
	"github.com/hitline/hitline/lookup/server"
)

// pollInterval is how often the files of listeners are looked at: Kubernetes and others replace them without a signal. A
// file that has changed is read when it is the same at two looks, so one that is still being written is not read.
const pollInterval = time.Second

// fileStates are what files were when they were looked at, by their paths; nil for one that could not be looked at. Links
// are followed: Kubernetes changes a file by another link.
type fileStates map[string]os.FileInfo

func look(paths []string) fileStates {
	states := fileStates{}
	for _, path := range paths {
		if info, err := os.Stat(path); err == nil {
			states[path] = info
		} else {
			states[path] = nil
		}
	}
	return states
}

// changed returns the paths of files that are not as in other.
func (f fileStates) changed(other fileStates) []string {
	var paths []string
	for path, a := range f {
		b := other[path]
		same := a == nil && b == nil ||
			a != nil && b != nil && os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
		if !same {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	return paths
}

// watchedListener is a listener with the parts of its settings that files give.
type watchedListener struct {
	listener
	settings server.Settings // in effect
	parts    []*watchedPart
}

// watchedPart is a part of a listener's settings. Each is read by itself, so that a wrong certificate does not keep a
// token from being revoked.
type watchedPart struct {
	part   config.Part
	files  []string
	taken  fileStates // when they were read
	seen   fileStates // at the last poll
	failed string     // what was logged at the last poll
}

// watchListener returns a listener with settings in effect, whose files were read in these states.
func watchListener(l listener, settings server.Settings, files fileStates) *watchedListener {
	w := &watchedListener{listener: l, settings: settings}
	for _, p := range config.Parts {
		part := &watchedPart{part: p, files: l.entry().PartFiles(p), taken: fileStates{}}
		for _, path := range part.files {
			part.taken[path] = files[path]
		}
		w.parts = append(w.parts, part)
	}
	return w
}

// differing returns the paths of the files that are others than in states.
func (w *watchedListener) differing(states fileStates) []string {
	var paths []string
	for _, p := range w.parts {
		paths = append(paths, p.taken.changed(states)...)
	}
	return paths
}

// watchedFile is the file of the configuration.
type watchedFile struct {
	path  string     // "" if there is none
	taken fileStates // when it was read, or was about to be
	seen  fileStates // at the last poll
}

// watchFile returns a file as it is before it is read.
func watchFile(path string) watchedFile {
	f := watchedFile{path: path}
	f.taken = look(f.paths())
	return f
}

func (f *watchedFile) paths() []string {
	if f.path == "" {
		return nil
	}
	return []string{f.path}
}

// hasChanged reports whether the file is another one than was read, and is not being written.
func (f *watchedFile) hasChanged() bool {
	now := look(f.paths())
	isStill := len(now.changed(f.seen)) == 0
	f.seen = now
	return isStill && len(now.changed(f.taken)) > 0
}

// poll looks at all files, and puts those into effect that have changed.
func (r *reloader) poll() {
	if r.file.hasChanged() {
		r.reload() // and not again if it is wrong, before it changes again
	}
	for _, l := range r.listeners {
		for _, p := range l.parts {
			now := look(p.files)
			isStill := len(now.changed(p.seen)) == 0
			p.seen = now
			switch changed := now.changed(p.taken); {
			case len(changed) == 0:
				p.failed = ""
			case isStill:
				r.reloadPart(l, p, now, changed)
			}
		}
	}
}

// reloadPart reads a part of a listener whose files are in a state. A part whose files are wrong stays as it is, and is
// read again at each poll; the line that says so is not repeated while they do not change.
func (r *reloader) reloadPart(l *watchedListener, p *watchedPart, now fileStates, changed []string) {
	update, warnings, err := l.readPart(p.part)
	settings := l.settings
	if err == nil {
		update(&settings)
		err = r.setListener(l.listener, settings)
	}
	if err != nil {
		if text := err.Error(); text != p.failed {
			r.logger.Error(notReloaded, "listen", l.entry().Address, "error", text)
			p.failed = text
		}
		return
	}
	l.settings, p.taken, p.failed = settings, now, ""
	r.warn(warnings)
	r.logger.Info("reloaded", "changed", changed)
}
