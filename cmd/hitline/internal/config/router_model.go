package config

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/hitline/hitline/blockhash"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/router"
	"github.com/hitline/hitline/router/hicache"
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
	return c.checkSettings(fieldsOf(m), path, "router.models[]")
}

// setRouterPool sets the pool of a model, its block size and its release.
func (c *Config) setRouterPool(m *RouterModel, path string) error {
	if len(m.HiCache) > 0 {
		return c.setHiCache(m, path)
	}
	if _, named := c.Pools[m.Pool]; m.Pool != "" && m.Pool != NoPool && !named {
		return c.wrong(path+".pool", "there is no pool %q; configure it under pools, or write %q for none", m.Pool, NoPool)
	}
	if m.Pool == "" && !c.HasPool() {
		m.Pool = NoPool
	}
	if m.Pool == NoPool {
		return nil
	}
	pool := c.poolRules(m).Pool()
	m.BlockSize = cmp.Or(m.BlockSize, pool.HashBlockSize)
	if m.Release == "" {
		m.Release = pool.VLLM
	}
	return nil
}

// setHiCache checks a model whose store is that of SGLang engines.
func (c *Config) setHiCache(m *RouterModel, path string) error {
	at := path + ".hicache_layout"
	for i, url := range m.HiCache {
		switch err := hicache.CheckURL(url); {
		case err != nil && len(m.HiCache) > 1:
			return c.wrong(fmt.Sprintf("%s[%d]", at, i), "%v", err)
		case err != nil:
			return c.wrong(at, "%v", err)
		}
	}
	switch {
	case len(m.HiCache) > hicache.MaxURLs:
		return c.wrong(at, "has %d addresses; at most %d are asked", len(m.HiCache), hicache.MaxURLs)
	case m.Pool != "" && m.Pool != NoPool:
		return c.wrong(at, "is there beside pool %q; give one of them", m.Pool)
	case c.Backend.Name() != "mooncake":
		return c.wrong(at, "needs backend.mooncake, the store of the engines, whose keys it says")
	case m.Hash == nil || !strings.EqualFold(m.Hash.Type, router.TypeSGLang):
		return c.wrong(at, "needs hash: {type: sglang}: the store's keys are made of token ids")
	case m.BlockSize == 0:
		return c.wrong(path+".block_size", "is missing; give the engines' page_size")
	}
	m.Pool = NoPool
	return nil
}

// poolRules returns the rules of a model's pool. Its store cannot be asked.
func (c *Config) poolRules(m *RouterModel) router.Pool {
	pool := c.Pool
	switch {
	case len(m.HiCache) > 0:
		pool = coordinator.Pool{HashBlockSize: m.BlockSize}
	case m.Pool != "":
		pool = c.Pools[m.Pool]
	}
	rules, _ := coordinator.New(pool) // checkPool has done it
	return storeless{rules}
}

// storeless is a pool without its store.
type storeless struct{ *coordinator.Coordinator }

// PeekPrompt implements router.Pool.
func (storeless) PeekPrompt(context.Context, int64, coordinator.Hashes) (coordinator.Hit, error) {
	return coordinator.Hit{}, nil
}
