package config

import (
	"cmp"
	"context"
	"fmt"

	"github.com/hitline/hitline/blockhash"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/router"
	"github.com/hitline/hitline/router/fleet"
)

// checkRouterModels checks the models and fills in their defaults.
func (c *Config) checkRouterModels() error {
	f := &c.Router
	f.Models = append([]RouterModel{}, f.Models...)
	for i := range f.Models {
		if err := c.setRouterModel(&f.Models[i], fmt.Sprintf("router.models[%d]", i)); err != nil {
			return err
		}
	}
	return nil
}

// setRouterModel fills in the defaults of a model, and checks what the router does not.
func (c *Config) setRouterModel(m *RouterModel, path string) error {
	if err := c.setRouterPool(m, path); err != nil {
		return err
	}
	m.Tenant = cmp.Or(m.Tenant, router.DefaultTenant)
	m.MaxBytes, m.MaxBlocks = cmp.Or(m.MaxBytes, c.Router.MaxBytes), cmp.Or(m.MaxBlocks, c.Router.MaxBlocks)
	m.PredictTTL = cmp.Or(m.PredictTTL, c.Router.PredictTTL)
	if m.Hash != nil {
		m.Hash = new(*m.Hash)
		m.Hash.SetDefaults()
		if m.Hash.Type == router.TypeVLLM {
			m.Hash.Release = cmp.Or(m.Hash.Release, m.Release, coordinator.NewestRelease())
			m.Hash.Algorithm = cmp.Or(m.Hash.Algorithm, blockhash.SHA256)
		}
	}
	return c.checkBounds(
		within(path+".max_bytes", m.MaxBytes, minRouterBytes, fleet.MaxBytes),
		within(path+".max_blocks", m.MaxBlocks, 1, maxBlocks),
		within(path+".predict_ttl", m.PredictTTL, minPredictTTL, maxPredictTTL),
	)
}

// setRouterPool sets the pool of a model, its block size and its release.
func (c *Config) setRouterPool(m *RouterModel, path string) error {
	if _, named := c.Pools[m.Pool]; m.Pool != "" && m.Pool != NoPool && !named {
		return c.wrong(path+".pool", "there is no pool %q; configure it under pools, or write %q for none", m.Pool, NoPool)
	}
	if m.Pool == "" && !c.HasPool() {
		m.Pool = NoPool
	}
	if m.Pool == NoPool {
		return nil
	}
	pool := c.poolRules(m.Pool).Pool()
	m.BlockSize = cmp.Or(m.BlockSize, pool.HashBlockSize)
	if m.Release == "" && !pool.IsUnknownRelease() {
		m.Release = pool.VLLM
	}
	return nil
}

// poolRules returns the rules of a pool of the configuration, "" for the server's own. Its store cannot be asked.
func (c *Config) poolRules(name string) router.Pool {
	pool := c.Pool
	if name != "" {
		pool = c.Pools[name]
	}
	rules, _ := coordinator.New(pool) // checkPool has done it
	return storeless{rules}
}

// storeless is a pool without its store.
type storeless struct{ *coordinator.Coordinator }

// ProbePrompt implements router.Pool.
func (storeless) ProbePrompt(context.Context, int64, coordinator.Hashes) (coordinator.Hit, error) {
	return coordinator.Hit{}, nil
}
