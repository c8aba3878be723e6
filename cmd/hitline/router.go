package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hitline/hitline/cmd/hitline/internal/config"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/cpushare"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/server"
	"github.com/hitline/hitline/router"
	"github.com/hitline/hitline/router/hicache"
)

// newRouter returns the service that knows who holds what, nil if none is configured. It follows no source yet. The
// services of the pools must have been made.
func (r *running) newRouter() (*router.Service, error) {
	if !r.cfg.Router.IsServed() {
		return nil, nil
	}
	if _, err := r.peerToken(); err != nil {
		return nil, err
	}
	cfg := r.cfg.Router.Config(r.poolOf)
	cfg.Logger, cfg.CPU = r.logger, r.cpu
	service, err := router.New(cfg)
	if err != nil {
		r.closeRouter()
		return nil, r.cfg.WithOrigin("router", err)
	}
	return service, nil
}

// closeRouter ends what newRouter has made.
func (r *running) closeRouter() {
	if r.router != nil {
		r.router.Close()
	}
	for _, p := range r.hicaches {
		p.Close()
	}
}

// poolOf returns what says what a model's store can load.
func (r *running) poolOf(m *config.RouterModel) router.Pool {
	if len(m.HiCache) > 0 {
		p := hicache.New(hicache.Config{
			URLs: m.HiCache, PageSize: m.BlockSize, Store: r.store.Backend, Timeout: r.store.remote.Timeout, Logger: r.logger,
		})
		r.hicaches = append(r.hicaches, p)
		return p
	}
	service := r.service
	for _, p := range r.named {
		if p.Name == m.Pool {
			service = p.Service
		}
	}
	if r.store != nil {
		return storePool{service}
	}
	return service
}

// storePool is a pool over a store. A request over HTTP that waits for the store holds no processor: see cpushare.Pause.
type storePool struct{ *lookup.Service }

// PeekPrompt implements router.Pool.
func (p storePool) PeekPrompt(ctx context.Context, numTokens int64, hashes coordinator.Hashes) (coordinator.Hit, error) {
	defer cpushare.Pause(ctx)()
	return p.Service.PeekPrompt(ctx, numTokens, hashes)
}

// ready returns what else the server waits for, nil if for nothing.
func (r *running) ready() error {
	switch {
	case r.store != nil && !r.storeSeen.Load():
		return errors.New("the store has not answered yet")
	case r.router != nil:
		return r.router.Ready()
	}
	return nil
}

// startRouter loads what a peer holds, if there are peers, and follows the sources of the configuration.
func (r *running) startRouter(ctx context.Context, srv *server.Server) error {
	if r.router == nil {
		return nil
	}
	cfg := &r.cfg.Router
	start := router.StartConfig{Peers: cfg.Peers, PeerTimeout: time.Duration(cfg.PeerTimeout), Sources: cfg.Sources}
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
		return startError(r.cfg.WithOrigin("router.sources", err))
	}
	for _, s := range cfg.Sources {
		r.logger.Info("following KV events", "source", s.Name, "endpoint", s.Endpoint, "bind", s.Bind, "replay", s.Replay,
			"model", s.Model, "tenant", s.Tenant, "engine", s.Engine, "rank", s.Rank)
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
		return "", r.cfg.WithOrigin("router.peer_token_file", err)
	}
	return token, nil
}
