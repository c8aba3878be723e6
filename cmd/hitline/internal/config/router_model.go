package config

import (
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"slices"

	"github.com/hitline/hitline/blockhash"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/router"
	"github.com/hitline/hitline/router/fleet"
)

// Engine is an engine whose hashes are known.
type Engine string

// The engines.
const (
	EngineVLLM   Engine = "vllm"
	EngineSGLang Engine = "sglang"
)

var _ encoding.TextUnmarshaler = new(Engine)

// UnmarshalText reads vllm or sglang.
func (e *Engine) UnmarshalText(text []byte) error {
	switch name := Engine(text); name {
	case EngineVLLM, EngineSGLang:
		*e = name
		return nil
	}
	return fmt.Errorf("%q is no engine; known are %s, %s", text, EngineVLLM, EngineSGLang)
}

// checkRouterModels checks the models and fills in their defaults.
func (c *Config) checkRouterModels() error {
	f := &c.Router
	f.Models = slices.Clone(f.Models)
	if f.Models == nil {
		f.Models = []RouterModel{}
	}
	if len(f.Models) > f.MaxModels {
		return c.wrong("router.models", "has %d models, and router.max_models is %d", len(f.Models), f.MaxModels)
	}
	type key struct{ tenant, name string }
	seen := map[key]bool{}
	for i := range f.Models {
		m, path := &f.Models[i], routerModelPath(i)
		m.Tenant = cmp.Or(m.Tenant, router.DefaultTenant)
		if err := c.checkName(path+".name", m.Name); err != nil {
			return err
		}
		if err := c.checkName(path+".tenant_id", m.Tenant); err != nil {
			return err
		}
		if seen[key{m.Tenant, m.Name}] {
			return c.wrong(path+".name", "%q of tenant %q is a model before it", m.Name, m.Tenant)
		}
		seen[key{m.Tenant, m.Name}] = true
		if err := c.checkRouterModel(m, path); err != nil {
			return err
		}
	}
	return nil
}

func routerModelPath(i int) string { return fmt.Sprintf("router.models[%d]", i) }

// checkRouterModel checks one model and fills in its defaults.
func (c *Config) checkRouterModel(m *RouterModel, path string) error {
	if err := c.setRouterPool(m, path); err != nil {
		return err
	}
	m.MaxBytes, m.MaxBlocks = cmp.Or(m.MaxBytes, c.Router.MaxBytes), cmp.Or(m.MaxBlocks, c.Router.MaxBlocks)
	m.PredictTTL = cmp.Or(m.PredictTTL, c.Router.PredictTTL)
	if err := c.checkBounds(
		within(path+".max_bytes", m.MaxBytes, minRouterBytes, maxInt),
		within(path+".max_blocks", m.MaxBlocks, 1, maxBlocks),
		within(path+".predict_ttl", m.PredictTTL, minPredictTTL, maxPredictTTL),
	); err != nil {
		return err
	}
	if err := c.checkRouterHash(m, path+".hash"); err != nil {
		return err
	}
	if m.Groups != nil && m.BlockSize == 0 {
		return c.wrong(path+".block_size", "is missing; groups need it")
	}
	// The rules of the groups are checked where they are used, with any block size if it is not known yet.
	if _, err := fleet.New(fleet.Config{BlockSize: cmp.Or(m.BlockSize, coordinator.DefaultHashBlockSize), Groups: m.Groups, Release: m.Release}); err != nil {
		return c.Blame(path, err)
	}
	return nil
}

// setRouterPool sets the pool of a model, its block size and its release.
func (c *Config) setRouterPool(m *RouterModel, path string) error {
	if _, named := c.Pools[m.Pool]; m.Pool != "" && m.Pool != NoPool && !named {
		return c.wrong(path+".pool", "there is no pool %q; configure it under pools, or write %q for none", m.Pool, NoPool)
	}
	if m.Pool == "" && !c.HasPool() {
		m.Pool = NoPool
	}
	pool, ok := c.RouterPool(m)
	if !ok {
		return nil
	}
	switch size := pool.HashBlockSize; {
	case m.BlockSize == 0:
		m.BlockSize = size
	case m.BlockSize != size:
		return c.wrong(path+".block_size", "is %d, and the hash_block_size of its pool is %d; give the same, or pool: %q", m.BlockSize, size, NoPool)
	}
	if m.Release == "" && !pool.IsUnknownRelease() {
		m.Release = pool.VLLM
	}
	return nil
}

// RouterPool returns the pool whose store is asked what of a model's prompts can be loaded: the one that it names, ""
// for the server's own. ok is false if there is none.
func (c *Config) RouterPool(m *RouterModel) (pool coordinator.Pool, ok bool) {
	switch {
	case m.Pool == NoPool:
		return coordinator.Pool{}, false
	case m.Pool == "":
		return c.Pool, true
	}
	rules, err := coordinator.New(c.Pools[m.Pool])
	if err != nil { // checkPool has refused it
		return coordinator.Pool{}, false
	}
	return rules.Pool(), true
}

// checkRouterHash checks how a model's tokens are hashed, and fills in the defaults.
func (c *Config) checkRouterHash(m *RouterModel, path string) error {
	if m.Hash == nil {
		return nil
	}
	h := *m.Hash
	m.Hash = &h
	if h.Engine == EngineSGLang {
		if h.Release != "" || h.Algorithm != "" || h.Seed != nil || h.Lookahead != 0 {
			return c.wrong(path, "release, algorithm, seed and lookahead are vLLM's; remove them for %s", EngineSGLang)
		}
		return nil
	}
	if h.Bigrams || h.Dynamo {
		return c.wrong(path, "bigrams and dynamo are SGLang's; remove them for %s", EngineVLLM)
	}
	m.Hash.Engine = EngineVLLM
	m.Hash.Release = cmp.Or(h.Release, m.Release, coordinator.NewestRelease())
	m.Hash.Algorithm = cmp.Or(h.Algorithm, string(blockhash.SHA256))
	_, err := blockhash.NewVLLM(blockhash.VLLMConfig{
		Release: m.Hash.Release, Algorithm: blockhash.Algorithm(m.Hash.Algorithm), Seed: m.Hash.Seed, Lookahead: m.Hash.Lookahead,
		BlockSize: cmp.Or(m.BlockSize, coordinator.DefaultHashBlockSize),
	})
	switch {
	case errors.Is(err, blockhash.ErrRandomSeed):
		return c.wrong(path+".seed", "is missing: vLLM %s with %s draws it at random; set PYTHONHASHSEED in the engines, and give it here", m.Hash.Release, m.Hash.Algorithm)
	case err != nil:
		return c.wrong(path, "%v", err)
	}
	return nil
}
