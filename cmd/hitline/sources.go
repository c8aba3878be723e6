package main

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/hitline/hitline/cmd/hitline/internal/config"
	"github.com/hitline/hitline/events"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/feed"
	"github.com/hitline/hitline/lookup/server"
)

// eventsConfig returns the configuration of a source as package events has it.
func eventsConfig(cfg *config.Config, s config.EventSource, logger *slog.Logger) events.Config {
	return events.Config{
		Name: s.Name, Connect: s.Connect, Bind: s.Bind, Replay: s.Replay, Topic: s.Topic, ExactCopies: s.ExactCopies,
		MaxPayload: int(cfg.Events.MaxPayload), MaxBlocks: cfg.Events.MaxBlocks, Timeout: time.Duration(s.Timeout), Logger: logger,
	}
}

// checkEvents returns what is wrong with the sources of the configuration, nil if nothing is. It follows none.
func (r *running) checkEvents() error {
	if err := checkAllowed(r.cfg, "events.register", r.cfg.Events.Register); err != nil {
		return err
	}
	for i, s := range r.cfg.Events.Sources {
		if err := checkSource(r.cfg, fmt.Sprintf("events.sources[%d]", i), eventsConfig(r.cfg, s, r.logger)); err != nil {
			return err
		}
	}
	return nil
}

// checkAllowed returns what is wrong with the endpoints at path that sources may be registered with.
func checkAllowed(cfg *config.Config, path string, endpoints []string) error {
	manager, err := events.NewManager(events.ManagerConfig{Allow: endpoints})
	if err != nil {
		return cfg.Blame(path, err)
	}
	manager.Close()
	return nil
}

// checkSource returns what is wrong with the source at path.
func checkSource(cfg *config.Config, path string, source events.Config) error {
	if _, err := events.NewFollower(source, events.NewSet(1)); err != nil {
		return cfg.Blame(path, err)
	}
	return nil
}

// startSources follows the sources of the configuration. It returns nil if there are none and none may be
// registered.
func (r *running) startSources(srv *server.Server) (*feed.Sources, error) {
	cfg := &r.cfg.Events
	if len(cfg.Sources) == 0 && len(cfg.Register) == 0 {
		return nil, nil
	}
	sources, err := feed.NewSources(feed.SourcesConfig{Service: configuredPools(srv), Allow: cfg.Register})
	if err != nil {
		return nil, r.cfg.Blame("events.register", err)
	}
	for i, s := range cfg.Sources {
		if err := sources.Add(feed.Source{Config: eventsConfig(r.cfg, s, r.logger), Pool: s.Pool, Media: s.Media}); err != nil {
			sources.Close()
			return nil, r.cfg.Blame(fmt.Sprintf("events.sources[%d]", i), err)
		}
		r.logger.Info("KV events fill a pool", "source", s.Name, "endpoint", s.Endpoint(), "replay", s.Replay, "pool", s.Pool, "media", s.Media)
	}
	if len(cfg.Register) > 0 && !srv.HasCredentials() && !r.cfg.MetricsIsLocal() {
		r.logger.Warn("everybody who can connect to metrics may register sources of KV events; use tokens, or set metrics to loopback")
	}
	return sources, nil
}

// configuredPools returns what finds the pools that events may fill: those of the configuration. A described
// pool may be removed when its last connection ends.
func configuredPools(srv *server.Server) func(name string) *lookup.Service {
	return func(name string) *lookup.Service {
		for _, p := range srv.Pools() {
			if p.Name == name && !p.Described {
				return p.Service
			}
		}
		return nil
	}
}
