package main

import (
	"context"
	"fmt"
	"time"

	"github.com/hitline/hitline/blockhash"
	"github.com/hitline/hitline/cmd/hitline/internal/config"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/server"
	"github.com/hitline/hitline/router"
	"github.com/hitline/hitline/router/fleet"
)

// newRouter returns the service that knows who holds what, nil if none is configured. It follows no source yet. The
// services of the pools must have been made.
func (r *running) newRouter() (*router.Service, error) {
	cfg := &r.cfg.Router
	if !cfg.IsServed() {
		return nil, nil
	}
	out := router.Config{MaxModels: cfg.MaxModels, Allow: cfg.Register, MaxPayload: int(cfg.MaxPayload), Logger: r.logger, Fleet: fleet.Config{
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
		return nil, r.cfg.Blame("router", err)
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
		out.Pool, out.PoolName = r.poolService(m.Pool), m.Pool
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

// routerReady returns what the router waits for, nil if for nothing.
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
	start := router.StartConfig{Peers: cfg.Peers, PeerTimeout: time.Duration(cfg.PeerTimeout), Sources: cfg.Sources}
	for _, s := range cfg.Sources {
		r.logger.Info("following KV events", "source", s.Name, "endpoint", s.Endpoint, "bind", s.Bind, "replay", s.Replay,
			"model", s.Model, "tenant", s.Tenant, "engine", s.Engine, "rank", s.Rank)
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
