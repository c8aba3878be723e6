package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/hitline/hitline/blockhash"
	"github.com/hitline/hitline/cmd/hitline/internal/config"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/server"
	"github.com/hitline/hitline/router"
	"github.com/hitline/hitline/router/events"
	"github.com/hitline/hitline/router/fleet"
)

// newRouter returns the service that knows who holds what, nil if none is configured. It follows no source yet. The
// services of the pools must have been made.
func (r *running) newRouter() (*router.Service, error) {
	cfg := &r.cfg.Router
	if !cfg.IsServed() {
		return nil, nil
	}
	manager, err := events.NewManager(events.ManagerConfig{Allow: cfg.Register})
	if err != nil {
		return nil, r.cfg.Blame("router.register", err)
	}
	manager.Close()
	out := router.Config{MaxModels: cfg.MaxModels, Allow: cfg.Register, Logger: r.logger, Fleet: fleet.Config{
		MaxBytes: int64(cfg.MaxBytes), MaxHolders: cfg.MaxHolders, MaxBlocks: cfg.MaxBlocks, PredictTTL: time.Duration(cfg.PredictTTL),
	}}
	for i := range cfg.Models {
		out.Models = append(out.Models, r.routerModel(&cfg.Models[i]))
	}
	if _, err := r.peerToken(); err != nil {
		return nil, err
	}
	service, err := router.New(out)
	if err != nil {
		return nil, r.cfg.Blame("router.models", err)
	}
	return service, nil
}

// routerModel returns the configuration of a model.
func (r *running) routerModel(m *config.RouterModel) router.Model {
	out := router.Model{ModelKey: router.ModelKey{Tenant: m.Tenant, Name: m.Name}, Fleet: fleet.Config{
		BlockSize: m.BlockSize, Groups: m.Groups, Release: m.Release,
		MaxBytes: int64(m.MaxBytes), MaxHolders: r.cfg.Router.MaxHolders, MaxBlocks: m.MaxBlocks, PredictTTL: time.Duration(m.PredictTTL),
	}}
	if m.Pool != config.NoPool {
		out.Service, out.Pool = r.poolService(m.Pool), m.Pool
	}
	if h := m.Hash; h != nil {
		out.Hash = &router.Hashing{
			SGLang: h.Engine == config.EngineSGLang, Release: h.Release, Algorithm: blockhash.Algorithm(h.Algorithm), Seed: h.Seed,
			Lookahead: h.Lookahead, Bigrams: h.Bigrams, Dynamo: h.Dynamo,
		}
	}
	return out
}

// poolService returns the service of a configured pool, "" for the server's own.
func (r *running) poolService(name string) *lookup.Service {
	if name == "" {
		return r.service
	}
	for _, p := range r.named {
		if p.Name == name {
			return p.Service
		}
	}
	return nil
}

// routerEvents returns the configuration of a source of the router as package events has it.
func routerEvents(cfg *config.Config, s config.RouterSource, logger *slog.Logger) events.Config {
	return events.Config{
		Name: s.Name, Connect: s.Connect, Bind: s.Bind, Replay: s.Replay, Topic: s.Topic, ExactCopies: s.ExactCopies,
		MaxPayload: int(cfg.Router.MaxPayload), MaxBlocks: maxRouterBlocks(cfg, s.Tenant, s.Model), Timeout: time.Duration(s.Timeout), Logger: logger,
	}
}

// maxRouterBlocks returns how many entries one holder of a model may have.
func maxRouterBlocks(cfg *config.Config, tenant, name string) int {
	for i := range cfg.Router.Models {
		if m := &cfg.Router.Models[i]; m.Name == name && m.Tenant == tenant {
			return m.MaxBlocks
		}
	}
	return cfg.Router.MaxBlocks
}

// completeSource sets the limits of a source that a client registers.
func (r *running) completeSource(s *router.Source) {
	s.MaxPayload = int(r.cfg.Router.MaxPayload)
	s.MaxBlocks = maxRouterBlocks(r.cfg, cmp.Or(s.Tenant, api.DefaultTenant), s.ModelKey.Name)
	s.Logger = r.logger
}

// routerReady returns what the holders wait for, nil if for nothing.
func (r *running) routerReady() error {
	if r.router == nil {
		return nil
	}
	return r.router.Ready()
}

// startRouter loads what a peer holds, if there are peers, and follows the sources of the configuration.
func (r *running) startRouter(ctx context.Context, srv *server.Server) error {
	if r.router == nil {
		return nil
	}
	cfg := &r.cfg.Router
	start := router.StartConfig{Peers: cfg.Peers, PeerTimeout: time.Duration(cfg.PeerTimeout), Configure: r.completeSource}
	for _, s := range cfg.Sources {
		start.Sources = append(start.Sources, router.Source{
			Config: routerEvents(r.cfg, s, r.logger), ModelKey: router.ModelKey{Tenant: s.Tenant, Name: s.Model}, ID: fleet.ID{Engine: s.Instance, Rank: s.Rank},
		})
		r.logger.Info("KV events fill a holder", "source", s.Name, "endpoint", s.Connect+s.Bind, "replay", s.Replay,
			"model", s.Model, "tenant", s.Tenant, "instance", s.Instance, "rank", s.Rank)
	}
	if len(cfg.Peers) > 0 {
		srv.SetPreparing("loading what a peer of the router holds")
		var err error
		if start.Token, err = r.peerToken(); err != nil {
			return configError(err)
		}
	}
	switch err := r.router.Start(ctx, start); {
	case ctx.Err() != nil:
		return fmt.Errorf("stopped before it was ready: %w", context.Cause(ctx))
	case err != nil:
		return configError(r.cfg.Blame("router.sources", err))
	}
	return nil
}

// peerToken returns the token for the peers, "" if there is none.
func (r *running) peerToken() (string, error) {
	path := r.cfg.Router.PeerTokenFile
	if path == "" {
		return "", nil
	}
	token, err := api.ReadTokenFile(path)
	if err != nil {
		return "", r.cfg.Blame("router.peer_token_file", err)
	}
	return token, nil
}
