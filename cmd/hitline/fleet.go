package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/hitline/hitline/blockhash"
	"github.com/hitline/hitline/cmd/hitline/internal/config"
	"github.com/hitline/hitline/events"
	"github.com/hitline/hitline/fleet"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/holders"
	"github.com/hitline/hitline/lookup/server"
)

// newFleet returns the service that knows who holds what, nil if none is configured. It follows no source yet. The
// services of the pools must have been made.
func (r *running) newFleet() (*holders.Service, error) {
	cfg := &r.cfg.Fleet
	if !cfg.IsServed() {
		return nil, nil
	}
	manager, err := events.NewManager(events.ManagerConfig{Allow: cfg.Register})
	if err != nil {
		return nil, r.cfg.Blame("fleet.register", err)
	}
	manager.Close()
	out := holders.Config{MaxModels: cfg.MaxModels, Allow: cfg.Register, Logger: r.logger, Fleet: fleet.Config{
		MaxBytes: int64(cfg.MaxBytes), MaxHolders: cfg.MaxHolders, MaxBlocks: cfg.MaxBlocks, PredictTTL: time.Duration(cfg.PredictTTL),
	}}
	for i := range cfg.Models {
		out.Models = append(out.Models, r.fleetModel(&cfg.Models[i]))
	}
	if _, err := r.peerToken(); err != nil {
		return nil, err
	}
	service, err := holders.New(out)
	if err != nil {
		return nil, r.cfg.Blame("fleet.models", err)
	}
	return service, nil
}

// fleetModel returns the configuration of a model.
func (r *running) fleetModel(m *config.FleetModel) holders.Model {
	out := holders.Model{ModelKey: holders.ModelKey{Tenant: m.Tenant, Name: m.Name}, Fleet: fleet.Config{
		BlockSize: m.BlockSize, Groups: m.Groups, Release: m.Release,
		MaxBytes: int64(m.MaxBytes), MaxHolders: r.cfg.Fleet.MaxHolders, MaxBlocks: m.MaxBlocks, PredictTTL: time.Duration(m.PredictTTL),
	}}
	if m.Pool != config.NoPool {
		out.Service, out.Pool = r.poolService(m.Pool), m.Pool
	}
	if h := m.Hash; h != nil {
		out.Hash = &holders.Hashing{
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

// fleetEvents returns the configuration of a source of the fleet as package events has it.
func fleetEvents(cfg *config.Config, s config.FleetSource, logger *slog.Logger) events.Config {
	return events.Config{
		Name: s.Name, Connect: s.Connect, Bind: s.Bind, Replay: s.Replay, Topic: s.Topic, ExactCopies: s.ExactCopies,
		MaxPayload: int(cfg.Fleet.MaxPayload), MaxBlocks: maxFleetBlocks(cfg, s.Tenant, s.Model), Timeout: time.Duration(s.Timeout), Logger: logger,
	}
}

// maxFleetBlocks returns how many entries one holder of a model may have.
func maxFleetBlocks(cfg *config.Config, tenant, name string) int {
	for i := range cfg.Fleet.Models {
		if m := &cfg.Fleet.Models[i]; m.Name == name && m.Tenant == tenant {
			return m.MaxBlocks
		}
	}
	return cfg.Fleet.MaxBlocks
}

// completeSource sets the limits of a source that a client registers.
func (r *running) completeSource(s *holders.Source) {
	s.MaxPayload = int(r.cfg.Fleet.MaxPayload)
	s.MaxBlocks = maxFleetBlocks(r.cfg, cmp.Or(s.Tenant, api.DefaultTenant), s.ModelKey.Name)
	s.Logger = r.logger
}

// fleetReady returns what the holders wait for, nil if for nothing.
func (r *running) fleetReady() error {
	if r.fleet == nil {
		return nil
	}
	return r.fleet.Ready()
}

// startFleet loads what a peer holds, if there are peers, and follows the sources of the configuration.
func (r *running) startFleet(ctx context.Context, srv *server.Server) error {
	if r.fleet == nil {
		return nil
	}
	cfg := &r.cfg.Fleet
	start := holders.StartConfig{Peers: cfg.Peers, PeerTimeout: time.Duration(cfg.PeerTimeout), Configure: r.completeSource}
	for _, s := range cfg.Sources {
		start.Sources = append(start.Sources, holders.Source{
			Config: fleetEvents(r.cfg, s, r.logger), ModelKey: holders.ModelKey{Tenant: s.Tenant, Name: s.Model}, ID: fleet.ID{Instance: s.Instance, Rank: s.Rank},
		})
		r.logger.Info("KV events fill a holder", "source", s.Name, "endpoint", s.Connect+s.Bind, "replay", s.Replay,
			"model", s.Model, "tenant", s.Tenant, "instance", s.Instance, "rank", s.Rank)
	}
	if len(cfg.Peers) > 0 {
		srv.SetPreparing("loading what a peer of the fleet holds")
		var err error
		if start.Token, err = r.peerToken(); err != nil {
			return configError(err)
		}
	}
	switch err := r.fleet.Start(ctx, start); {
	case ctx.Err() != nil:
		return fmt.Errorf("stopped before it was ready: %w", context.Cause(ctx))
	case err != nil:
		return configError(r.cfg.Blame("fleet.sources", err))
	}
	return nil
}

// peerToken returns the token for the peers, "" if there is none.
func (r *running) peerToken() (string, error) {
	path := r.cfg.Fleet.PeerTokenFile
	if path == "" {
		return "", nil
	}
	token, err := api.ReadTokenFile(path)
	if err != nil {
		return "", r.cfg.Blame("fleet.peer_token_file", err)
	}
	return token, nil
}
