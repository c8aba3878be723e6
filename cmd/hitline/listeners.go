package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"syscall"
	"time"

	"github.com/hitline/hitline/cmd/hitline/internal/config"
	"github.com/hitline/hitline/cmd/internal/cli"
	"github.com/hitline/hitline/lookup/server"
)

// listener is an address of the server, with the entry that its settings come from.
type listener struct {
	cfg   *config.Config
	index int // in cfg.Listen, or routerListener
}

// routerListener is the index of router.listen.
const routerListener = -1

// entry returns the entry of the configuration.
func (l listener) entry() *config.Listener {
	if l.index == routerListener {
		return l.cfg.Router.Listen
	}
	return &l.cfg.Listen[l.index]
}

// in returns the listener with the same address in next, or l if that has none.
func (l listener) in(next *config.Config) listener {
	if l.index == routerListener {
		if next.HasRouterListener(l.entry().Address) {
			return listener{next, routerListener}
		}
		return l
	}
	if j := next.FindListener(l.entry().Address); j >= 0 {
		return listener{next, j}
	}
	return l
}

// listenersOf returns those of a configuration, that of the router, if there is one, at the end.
func listenersOf(cfg *config.Config) []listener {
	list := make([]listener, len(cfg.Listen))
	for i := range list {
		list[i] = listener{cfg, i}
	}
	if cfg.Router.Listen != nil {
		list = append(list, listener{cfg, routerListener})
	}
	return list
}

// readListener is what the files of a listener say.
type readListener struct {
	server.Listener
	warnings []string
	files    fileStates // before they were read; one that has changed since is found by the next polls
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
	files := look(l.entry().Files())
	settings, warnings, err := l.cfg.ReadSettings(l.entry(), time.Now())
	return readListener{server.Listener{Address: l.entry().Address, Settings: settings}, warnings, files}, err
}

// readPart reads the files of a part of the listener's settings.
func (l listener) readPart(p config.Part) (config.Update, []string, error) {
	return l.cfg.ReadPart(l.entry(), p, time.Now())
}

// serverListeners returns those of listen.
func (r *running) serverListeners() []server.Listener {
	var all []server.Listener
	for i := range r.cfg.Listen {
		l := r.read[i].Listener
		l.Socket = r.sockets[config.ListenPath(i)]
		all = append(all, l)
	}
	return all
}

// listenError words the error of an address that cannot be bound, which its text names once. other says how to choose
// another address.
func listenError(err error, other string) error {
	failed, ok := errors.AsType[*net.OpError](err)
	switch {
	case !ok || failed.Addr == nil: // a unix socket, or a host name that is not found
		return err
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%s is in use; %s", failed.Addr, other)
	}
	return fmt.Errorf("cannot listen at %s: %w; %s", failed.Addr, cli.SystemCause(failed), other)
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
