package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
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
	sample    func(ctx context.Context) (sample, error) // nil if it lists no keys
	begin     func(told error)                          // the backend may write to the log from now on
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
		IOTimeout: max(time.Duration(c.Timeout), lookup.DefaultWriteTimeout),
	})
	if err != nil {
		return nil, cfg.Blame("backend.redis", err)
	}
	return &store{
		Backend:   b,
		addresses: strings.Split(strings.TrimPrefix(b.String(), b.Name()+" at "), ","),
		remote:    lookup.RemoteConfig{Strategy: c.Strategy.Lookup(), Timeout: time.Duration(c.Timeout)},
		info: func(ctx context.Context) (storeInfo, error) {
			i, err := b.Info(ctx)
			if err == nil && i.Mode == "cluster" && !c.InCluster() {
				err = fmt.Errorf("%w: %s: the server is a node of a cluster: use redis-cluster:// instead of redis://, or cluster: true", backend.ErrMismatch, b)
			}
			return storeInfo{
				Server: strings.TrimSpace(i.Server + " " + i.Version), Mode: i.Mode, Nodes: i.Nodes, RoundTrip: i.RoundTrip,
				Blocks: i.Blocks, Sampled: i.Sampled, Replica: i.Role == "slave",
			}, err
		},
		sample: func(ctx context.Context) (sample, error) {
			found, err := b.Sample(ctx)
			return newSample(found.Keys, found.Sets, found.Complete), err
		},
		begin: func(error) {},
	}, nil
}

func openMooncake(cfg *config.Config, logger *slog.Logger) (*store, error) {
	c := cfg.Backend.Mooncake
	late := &lateHandler{Handler: logger.Handler()}
	b, err := mooncake.New(mooncake.Config{
		Masters: c.Masters, Admin: c.Admin, Tenant: c.Tenant, Conns: c.Conns, AllowReset: c.AllowReset, Logger: slog.New(late),
	})
	if err != nil {
		return nil, cfg.Blame("backend.mooncake", err)
	}
	s := &store{
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
		begin: late.begin,
	}
	if len(c.Admin) > 0 {
		s.sample = func(ctx context.Context) (sample, error) {
			keys, complete, err := b.Keys(ctx, sampleMost)
			return newSample(keys, nil, complete), err
		}
	}
	return s, nil
}

// sampleMost is how many keys of a Mooncake store are looked at.
const sampleMost = 20000

// lateHandler drops what is logged before it is told to begin, and an error that was told
// then: serve itself says how it finds the store at the start, in one line.
type lateHandler struct {
	slog.Handler
	told atomic.Pointer[string] // nil before the beginning, "" once all is new
}

// begin lets the log begin, after serve has told of an error, or of none.
func (h *lateHandler) begin(told error) {
	text := ""
	if told != nil {
		text = told.Error()
	}
	h.told.Store(&text)
}

// Enabled is the handler's own once it has begun.
func (h *lateHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.told.Load() != nil && h.Handler.Enabled(ctx, level)
}

// Handle drops the error that was told, until something well is told.
func (h *lateHandler) Handle(ctx context.Context, r slog.Record) error {
	told, known := h.told.Load(), false
	if r.Level < slog.LevelWarn {
		h.told.Store(new(string))
	} else if *told != "" {
		r.Attrs(func(a slog.Attr) bool {
			known = a.Key == "error" && strings.Contains(*told, a.Value.String())
			return !known
		})
	}
	if known {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

// welcome is how long serve waits for the store before it serves anyway.
const welcome = time.Second

// greet says in one line how it finds the store. One that is away may come, and
// lookups are hits of 0 until it does; one that is there and not what the configuration
// says needs somebody.
func (s *store) greet(ctx context.Context, logger *slog.Logger) {
	ctx, cancel := context.WithTimeout(ctx, welcome)
	defer cancel()
	info, err := s.info(ctx)
	defer s.begin(err)
	switch {
	case err == nil:
		logger.Info("the store answers", "backend", s.Name(), "server", info.Server, "mode", info.Mode)
	case errors.Is(err, backend.ErrMismatch):
		logger.Error("the store is not what the configuration says; serving anyway, every lookup is a hit of 0",
			"backend", s.Name(), "error", err.Error(), "help", "hitline doctor")
	default:
		logger.Warn("the store cannot be used; serving anyway, every lookup is a hit of 0 until it can",
			"backend", s.Name(), "error", err.Error(), "help", "hitline doctor")
	}
}
