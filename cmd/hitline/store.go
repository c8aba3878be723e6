package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/hitline/hitline/backend"
	"github.com/hitline/hitline/backend/mooncake"
	"github.com/hitline/hitline/backend/redis"
	"github.com/hitline/hitline/cmd/hitline/internal/config"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup"
)

// store is the remote backend that a configuration names.
type store struct {
	backend.Backend
	addresses []string // host:port, or the path of a socket
	remote    lookup.RemoteConfig
	info      func(ctx context.Context) (storeInfo, error)
}

// storeInfo is what a store says about itself.
type storeInfo struct {
	Server    string // and its version
	Mode      string
	Nodes     int // primaries; 0: not said
	RoundTrip time.Duration
	Blocks    int64 // of the pool; -1: not known
	Sampled   bool  // Blocks is an estimate
	Replica   bool
	ListsKeys bool
}

// String names the store without anything secret.
func (s *store) String() string { return strings.Join(s.addresses, ",") }

// openStore returns the store that cfg names, nil for the memory backend. It does
// not wait for a connection.
func openStore(cfg *config.Config, logger *slog.Logger) (*store, error) {
	switch cfg.Backend.Name() {
	case "redis":
		return openRedis(cfg)
	case "mooncake":
		return openMooncake(cfg, logger)
	}
	return nil, nil
}

func openRedis(cfg *config.Config) (*store, error) {
	rules, err := coordinator.New(cfg.Pool)
	if err != nil {
		return nil, cfg.Blame("pool", err)
	}
	if cfg.Pool.ModelName == "" && cfg.Pool.CachePrefix == "" {
		return nil, cfg.Blame("pool.model_name", errors.New("is empty; set it to the engine's model, with which the keys in a Redis begin"))
	}
	redis.DiscardDriverLog()
	c := cfg.Backend.Redis
	b, err := redis.New(redis.Config{
		URL: c.URL, Cluster: c.Cluster, KeyPrefix: redis.PoolPrefix(rules),
		Layout: redis.Layout(c.Layout), TTL: time.Duration(c.TTL), PoolSize: c.PoolSize,
	})
	if err != nil {
		section := "backend.redis"
		if strings.Contains(err.Error(), "the URL ") {
			section = "backend.redis.url"
		}
		return nil, cfg.Blame(section, err, redis.ErrConfig)
	}
	return &store{
		Backend:   b,
		addresses: strings.Split(strings.TrimPrefix(b.String(), b.Name()+" at "), ","),
		remote:    lookup.RemoteConfig{Strategy: c.Strategy.Lookup(), Timeout: time.Duration(c.Timeout)},
		info: func(ctx context.Context) (storeInfo, error) {
			i, err := b.Info(ctx)
			if err == nil && i.Mode == "cluster" && !c.InCluster() {
				err = fmt.Errorf("%w: redis: %s: the server is a node of a cluster: use redis-cluster:// instead of redis://, or cluster: true", backend.ErrReply, b)
			}
			return storeInfo{
				Server: strings.TrimSpace(i.Server + " " + i.Version), Mode: i.Mode, Nodes: i.Nodes, RoundTrip: i.RoundTrip,
				Blocks: i.Blocks, Sampled: i.Sampled, Replica: i.Role == "slave", ListsKeys: true,
			}, err
		},
	}, nil
}

func openMooncake(cfg *config.Config, logger *slog.Logger) (*store, error) {
	c := cfg.Backend.Mooncake
	b, err := mooncake.New(mooncake.Config{
		Masters: c.Masters, Tenant: c.Tenant, Conns: c.Conns, AllowReset: c.AllowReset, Logger: logger,
	})
	if err != nil {
		for _, field := range []string{"masters", "tenant", "conns"} {
			if strings.Contains(err.Error(), ": "+field+": ") {
				return nil, cfg.Blame("backend.mooncake."+field, err, mooncake.ErrConfig, errors.New(field))
			}
		}
		return nil, cfg.Blame("backend.mooncake", err, mooncake.ErrConfig)
	}
	return &store{
		Backend:   b,
		addresses: c.Masters,
		remote:    lookup.RemoteConfig{Strategy: c.Strategy.Lookup(), Timeout: time.Duration(c.Timeout)},
		info: func(ctx context.Context) (storeInfo, error) {
			i, err := b.Info(ctx)
			info := storeInfo{Mode: "form " + i.Form.String(), RoundTrip: i.RTT, Blocks: -1}
			if err == nil {
				info.Server = "mooncake_master " + i.Version + " at " + i.Leader
			}
			return info, err
		},
	}, nil
}

// welcome is how long serve waits for the store before it serves anyway.
const welcome = time.Second

// greet warns if the store cannot be used. Lookups are hits of 0 until it can.
func (s *store) greet(ctx context.Context, logger *slog.Logger) {
	ctx, cancel := context.WithTimeout(ctx, welcome)
	defer cancel()
	if _, err := s.info(ctx); err != nil {
		logger.Warn("the store cannot be used; serving anyway, every lookup is a hit of 0 until it can",
			"backend", s.Name(), "error", err.Error(), "help", "hitline doctor")
	}
}
