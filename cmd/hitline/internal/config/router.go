package config

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/router"
	"github.com/hitline/hitline/router/events"
	"github.com/hitline/hitline/router/fleet"
)

// Router configures who holds what: the engines whose KV events tell it, and the HTTP listener that answers
// routers. MaxHolders to PredictTTL are of each model.
type Router struct {
	Listen     *Listener       `yaml:"listen,omitempty"` // of HTTP; nil: not served
	Models     []RouterModel   `yaml:"models"`
	Sources    []router.Source `yaml:"sources"`
	Register   []string        `yaml:"register"` // endpoints that POST /register may name; none: it is refused
	MaxModels  int             `yaml:"max_models"`
	MaxHolders int             `yaml:"max_holders"`
	MaxBytes   Size            `yaml:"max_bytes"`
	MaxBlocks  int             `yaml:"max_blocks"` // entries of one holder
	PredictTTL Duration        `yaml:"predict_ttl"`
	MaxPayload Size            `yaml:"max_payload"` // bytes of one batch of events
	// Peers are the HTTP listeners of other servers, whose state this one starts from.
	Peers         []string `yaml:"peers"`
	PeerTimeout   Duration `yaml:"peer_timeout"`
	PeerTokenFile string   `yaml:"peer_token_file"` // "": no token
}

// RouterModel is a model whose engines hash alike. As text it is its name.
type RouterModel struct {
	Name      string `yaml:"name"`
	Tenant    string `yaml:"tenant_id"`
	BlockSize int    `yaml:"block_size"` // tokens of a hash; 0: of its pool
	Pool      string `yaml:"pool"`       // whose store is asked what can be loaded; "": the server's own if that is configured
	// HiCache are URLs at which SGLang engines tell the keys of their store, which is then asked in place of Pool.
	HiCache URLs                `yaml:"hicache_layout,omitempty"`
	Hash    *router.Hashing     `yaml:"hash,omitempty"`
	Groups  []coordinator.Group `yaml:"groups,omitempty"` // nil: as events tell
	Release string              `yaml:"release"`          // "": that of the pool, otherwise the newest
	// 0: as of the Fleet.
	MaxBytes   Size     `yaml:"max_bytes"`
	MaxBlocks  int      `yaml:"max_blocks"`
	PredictTTL Duration `yaml:"predict_ttl"`
}

// URLs are addresses. As text they are one.
type URLs []string

// setShort reads the URL that stands for the whole. An empty one is none.
func (u *URLs) setShort(s scalar) error {
	var one string
	err := s.set(reflect.ValueOf(&one).Elem())
	if *u = nil; one != "" {
		*u = URLs{one}
	}
	return err
}

// NoPool is the RouterModel.Pool of a model without a pool.
const NoPool = "-"

// defaultRouter returns what is in effect when nothing is configured.
func defaultRouter() Router {
	return Router{
		Models: []RouterModel{}, Sources: []router.Source{}, Register: []string{}, Peers: []string{},
		MaxModels: router.DefaultMaxModels, MaxHolders: fleet.DefaultMaxHolders, MaxBytes: fleet.DefaultMaxBytes, MaxBlocks: fleet.DefaultMaxBlocks,
		PredictTTL: Duration(fleet.DefaultPredictTTL), MaxPayload: events.DefaultMaxPayload, PeerTimeout: Duration(router.DefaultPeerTimeout),
	}
}

// IsServed reports whether anything of the section is configured that needs a fleet.
func (f *Router) IsServed() bool {
	return f.Listen != nil || len(f.Models)+len(f.Sources)+len(f.Register)+len(f.Peers) > 0
}

// setShort reads the name that stands for the whole.
func (m *RouterModel) setShort(s scalar) error {
	*m = RouterModel{}
	return s.set(reflect.ValueOf(&m.Name).Elem())
}

// checkRouter checks the section and fills in its defaults.
func (c *Config) checkRouter() error {
	f := &c.Router
	for _, check := range []func() error{c.checkRouterModels, c.checkRouterSources, c.checkRouterPeers} {
		if err := check(); err != nil {
			return err
		}
	}
	if len(f.Register) > 0 && f.Listen == nil {
		return c.wrong("router.register", "needs router.listen, the address that POST /register is served at, such as 127.0.0.1:8557")
	}
	if f.Listen != nil && len(f.Models)+len(f.Register)+len(f.Peers) == 0 {
		return c.wrong(routerListenPath, "has no model to answer about; configure router.models, router.register or router.peers")
	}
	return nil
}

// Config returns the configuration of the router's service. pool returns what says what a model's store can load. It is not
// called for models without a store.
func (f *Router) Config(pool func(m *RouterModel) router.Pool) router.Config {
	cfg := router.Config{MaxModels: f.MaxModels, Allow: f.Register, MaxPayload: int(f.MaxPayload), Fleet: fleet.Config{
		MaxBytes: int64(f.MaxBytes), MaxHolders: f.MaxHolders, MaxBlocks: f.MaxBlocks, PredictTTL: time.Duration(f.PredictTTL),
	}}
	for i := range f.Models {
		m := &f.Models[i]
		out := router.Model{ModelKey: router.ModelKey{Tenant: m.Tenant, Name: m.Name}, Hash: m.Hash, Fleet: fleet.Config{
			BlockSize: m.BlockSize, Groups: m.Groups, Release: m.Release,
			MaxBytes: int64(m.MaxBytes), MaxHolders: f.MaxHolders, MaxBlocks: m.MaxBlocks, PredictTTL: time.Duration(m.PredictTTL),
		}}
		if m.Pool != NoPool || len(m.HiCache) > 0 {
			out.Pool, out.PoolName = pool(m), m.Pool
			if len(m.HiCache) > 0 {
				out.PoolName = m.HiCache[0]
			}
		}
		cfg.Models = append(cfg.Models, out)
	}
	return cfg
}

const routerListenPath = "router.listen"

// checkRouterSources checks the models together and the sources, and fills in the sources' defaults.
func (c *Config) checkRouterSources() error {
	f := &c.Router
	service, err := router.New(f.Config(c.poolRules))
	if err != nil {
		return c.WithOrigin("router", err)
	}
	names, holders, all := map[string]int{}, map[string]bool{}, []router.Source{}
	for i, s := range f.Sources {
		path := fmt.Sprintf("router.sources[%d]", i)
		if err := c.checkRouterSource(service, &s, path); err != nil {
			return err
		}
		ranks, _ := s.EachRank() // it was checked
		for _, s := range ranks {
			holder := fmt.Sprint(s.ModelKey(), s.ID())
			before, isNamed := names[s.Name]
			switch {
			case isNamed && s.Name == s.Endpoint: // it has no name
				return c.wrong(path+".endpoint", "%q is that of sources[%d]; give one of them a name", s.Endpoint, before)
			case isNamed:
				return c.wrong(path+".name", "%q is the name of sources[%d]; give another", s.Name, before)
			case holders[holder]:
				return c.wrong(path+".instance_id", "a source before it is of rank %d of %q; a rank has one source", s.Rank, s.Engine)
			}
			names[s.Name], holders[holder] = i, true
		}
		all = append(all, ranks...)
	}
	f.Sources = all
	return nil
}

// checkRouterSource checks one source and fills in its defaults.
func (c *Config) checkRouterSource(service *router.Service, s *router.Source, path string) error {
	models := c.Router.Models
	switch {
	case s.Model != "":
	case len(models) == 0:
		return c.wrong(path, "has no model; configure router.models")
	case len(models) > 1:
		return c.wrong(path, "has no model; name one of router.models")
	default:
		s.Model, s.Tenant = models[0].Name, cmp.Or(s.Tenant, models[0].Tenant)
	}
	s.SetDefaults()
	if err := service.Check(*s); err != nil {
		return c.WithOrigin(path, err)
	}
	if !slices.ContainsFunc(models, func(m RouterModel) bool { return m.Name == s.Model && m.Tenant == s.Tenant }) {
		return c.wrong(path+".model", "there is no model %q of tenant %q; configure it under router.models", s.Model, s.Tenant)
	}
	return nil
}

func (c *Config) checkRouterPeers() error {
	for i, peer := range c.Router.Peers {
		if err := router.CheckPeer(peer); err != nil {
			return c.wrong(fmt.Sprintf("router.peers[%d]", i), "%v", err)
		}
	}
	return nil
}
