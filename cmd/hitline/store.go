package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"github.com/hitline/hitline/backend"
	"github.com/hitline/hitline/backend/mooncake"
	"github.com/hitline/hitline/backend/redis"
	"github.com/hitline/hitline/cmd/hitline/internal/config"
	"github.com/hitline/hitline/cmd/hitline/internal/diagnosis"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/fielderror"
	"github.com/hitline/hitline/lookup"
)

// remoteStore is the backend that a configuration names, opened. The command that opened
// it closes it.
type remoteStore struct {
	backend.Backend
	addresses []string // host:port, or the path of a socket
	remote    lookup.RemoteConfig
	info      func(ctx context.Context) (diagnosis.Info, error)
	sample    func(ctx context.Context) (diagnosis.Sample, error) // nil if the store cannot list its keys
	// forPool returns the backend as a pool uses it.
	forPool func(pool coordinator.Pool) (backend.Backend, error)
}

// String returns the addresses, without secrets.
func (s *remoteStore) String() string { return strings.Join(s.addresses, ",") }

// forDiagnosis returns s as the diagnosis uses it. s still owns the backend.
func (s *remoteStore) forDiagnosis() *diagnosis.Store {
	return &diagnosis.Store{
		Backend: s.Name(), Address: s.String(), Timeout: s.remote.Timeout,
		Exists: func(ctx context.Context, keys []string) ([]int, error) {
			return s.Backend.Exists(ctx, backend.KeyList(keys), true)
		},
		Info: s.info, Sample: s.sample, Reachable: s.reachable,
	}
}

// connectTimeout bounds one connection that only checks whether an address accepts one.
const connectTimeout = time.Second

// reachable reports whether any of the store's addresses accepts a connection.
func (s *remoteStore) reachable(ctx context.Context) bool {
	if ctx.Err() != nil {
		return false
	}
	for _, address := range s.addresses {
		network := "tcp"
		if strings.HasPrefix(address, "/") {
			network = "unix"
		}
		dialer := net.Dialer{Timeout: connectTimeout}
		if conn, err := dialer.DialContext(ctx, network, address); err == nil {
			_ = conn.Close()
			return true
		} else if errors.Is(err, os.ErrPermission) {
			return true // the socket exists, and its mode excludes this process
		}
	}
	return false
}

// openStore returns the store that cfg names, nil for the memory backend. It does
// not wait for a connection.
func openStore(cfg *config.Config, logger *slog.Logger) (*remoteStore, error) {
	switch cfg.Backend.Name() {
	case "redis":
		return openRedis(cfg)
	case "mooncake":
		return openMooncake(cfg, logger)
	}
	return nil, nil
}

func openRedis(cfg *config.Config) (*remoteStore, error) {
	prefix := "(no pool)" // of a server without a pool of its own, which makes no calls
	if cfg.ServesPool() {
		rules, err := coordinator.New(cfg.Pool)
		if err != nil {
			return nil, cfg.WithOrigin("pool", err)
		}
		if prefix, err = redisPrefix(rules); err != nil {
			return nil, cfg.WithOrigin("pool", err)
		}
	}
	redis.DiscardDriverLog()
	c := cfg.Backend.Redis
	b, err := redis.New(redis.Config{
		URL: c.URL, KeyPrefix: prefix,
		TTL: time.Duration(c.TTL), PoolSize: c.PoolSize,
		IOTimeout: max(time.Duration(c.Timeout), lookup.DefaultWriteTimeout),
	})
	if err != nil {
		return nil, cfg.WithOrigin("backend.redis", err)
	}
	return &remoteStore{
		Backend:   b,
		addresses: strings.Split(strings.TrimPrefix(b.String(), b.Name()+" at "), ","),
		remote:    lookup.RemoteConfig{Timeout: time.Duration(c.Timeout), NumBlocks: c.Blocks},
		info: func(ctx context.Context) (diagnosis.Info, error) {
			i, err := b.Info(ctx)
			if err == nil && i.Mode == "cluster" && !c.InCluster() {
				err = fmt.Errorf("%w: %s: the server is a node of a cluster: use redis-cluster:// instead of redis://", backend.ErrMismatch, b)
			}
			return diagnosis.Info{
				Server: strings.TrimSpace(i.Server + " " + i.Version), Mode: i.Mode, Nodes: i.Nodes, RoundTrip: i.RoundTrip,
				Replica: i.Role == "slave",
			}, err
		},
		sample: func(ctx context.Context) (diagnosis.Sample, error) {
			sample, err := b.Sample(ctx)
			return diagnosis.Sample{Keys: sample.Keys, Complete: sample.Complete}, err
		},
		forPool: func(pool coordinator.Pool) (backend.Backend, error) {
			rules, err := coordinator.New(pool)
			if err != nil {
				return nil, fmt.Errorf("pool: %w", err)
			}
			prefix, err := redisPrefix(rules)
			if err != nil {
				return nil, err
			}
			return b.WithPrefix(prefix), nil
		},
	}, nil
}

// redisPrefix returns the prefix of a pool's keys in a Redis.
func redisPrefix(rules *coordinator.Coordinator) (string, error) {
	if err := redis.CheckLayout(rules.Pool()); err != nil {
		return "", err
	}
	if pool := rules.Pool(); pool.ModelName == "" && pool.CachePrefix == "" {
		return "", fielderror.New([]string{"model_name"}, "is missing; set it to the engine's model, with which the keys in a Redis begin")
	}
	return redis.PoolPrefix(rules), nil
}

// maxSampledKeys bounds the keys in a sample of a Mooncake store.
const maxSampledKeys = 20000

func openMooncake(cfg *config.Config, logger *slog.Logger) (*remoteStore, error) {
	c := cfg.Backend.Mooncake
	b, err := mooncake.New(mooncake.Config{
		Masters: c.Masters, Admin: c.Admin, Tenant: c.Tenant, Conns: c.Conns, AllowReset: c.AllowReset,
		Lease: time.Duration(c.Lease), Logger: logger,
	})
	if err != nil {
		return nil, cfg.WithOrigin("backend.mooncake", err)
	}
	s := &remoteStore{
		Backend:   b,
		addresses: c.Masters,
		remote: lookup.RemoteConfig{
			Timeout: time.Duration(c.Timeout), NumBlocks: c.Blocks,
			Renew: c.Renew.Lookup(), Remember: c.Remember.Lookup(), Grouped: c.Groups,
		},
		info: func(ctx context.Context) (diagnosis.Info, error) {
			i, err := b.Info(ctx)
			info := diagnosis.Info{Mode: "calls with " + i.Form.String(), RoundTrip: i.RTT}
			if err == nil {
				info.Server = "mooncake_master " + i.Version + " at " + i.Leader
			}
			if i.Probes {
				info.Mode += "; doctor and explain take no lease (v0.3.14 on)"
			} else {
				info.Mode += "; doctor and explain take leases, as lookups do"
			}
			return info, err
		},
		forPool: func(coordinator.Pool) (backend.Backend, error) { return b, nil },
	}
	if len(c.Admin) > 0 {
		s.sample = func(ctx context.Context) (diagnosis.Sample, error) {
			keys, complete, err := b.Keys(ctx, maxSampledKeys)
			sample := diagnosis.Sample{Keys: keys, Complete: complete}
			if len(keys) > 0 {
				sample.Lease, _ = b.StatedLease(ctx, keys[0]) // 0 if it states none
			}
			return sample, err
		}
	}
	return s, nil
}
