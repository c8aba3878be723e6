package main

import (
	"log/slog"
	"time"

	"github.com/hitline/hitline/cmd/hitline/internal/config"
	"github.com/hitline/hitline/lookup/server"
)

// listener is an address of the server, with the entry that its settings come from.
type listener struct {
	cfg   *config.Config
	index int // in cfg.Listen
}

func (l listener) entry() *config.Listener { return &l.cfg.Listen[l.index] }

// listenersOf returns those of a configuration.
func listenersOf(cfg *config.Config) []listener {
	list := make([]listener, len(cfg.Listen))
	for i := range list {
		list[i] = listener{cfg, i}
	}
	return list
}

// readListener is what the files of a listener say.
type readListener struct {
	server.Listener
	warnings []string
	versions fileVersions // of the files; one that has changed since is found by the next polls
}

// readListeners reads the files of listeners.
func readListeners(listeners []listener) ([]readListener, error) {
	list := make([]readListener, len(listeners))
	for i, l := range listeners {
		var err error
		if list[i], err = l.read(); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func (l listener) read() (readListener, error) {
	versions := readVersions(l.entry().Files())
	settings, warnings, err := l.cfg.ReadSettings(l.index, time.Now())
	return readListener{server.Listener{Address: l.entry().Address, Settings: settings}, warnings, versions}, err
}

// serverListeners returns what the server needs of listeners.
func serverListeners(list []readListener) []server.Listener {
	var all []server.Listener
	for i := range list {
		all = append(all, list[i].Listener)
	}
	return all
}

// logAccess logs what peers without a credential may do, of each listener that other machines
// reach.
func logAccess(listeners []listener, logger *slog.Logger) {
	for _, l := range listeners {
		if entry := l.entry(); !entry.IsLocal() {
			logger.Info("requests of peers without a credential", "listen", entry.Address, "allow", entry.Permissions().Names())
		}
	}
}
