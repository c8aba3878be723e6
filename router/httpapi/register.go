package httpapi

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hitline/hitline/router"
	"github.com/hitline/hitline/router/fleet"
)

// changed is the reply to a change.
type changed struct {
	Status   string   `json:"status"`
	Instance string   `json:"instance_id,omitempty"`
	Removed  []string `json:"removed_instances,omitempty"`
}

// engines has the engines by their type in a request, in lower case.
var engines = map[string]string{"": "", "vllm": router.TypeVLLM, "sglang": router.TypeSGLang}

// source returns the source that a registration names.
func (r *request) source() (src router.Source, err error) {
	for _, f := range []struct {
		field      fieldSet
		name, text string
	}{{fieldEndpoint, "endpoint", r.endpoint}, {fieldModel, "modelname", r.model}, {fieldInstance, "instance_id", r.instance}} {
		if err := r.need(f.field, f.name, f.text); err != nil {
			return src, err
		}
	}
	engine, known := engines[strings.ToLower(r.engine)]
	switch {
	case !known:
		return src, fmt.Errorf("%w type: %.40q; known are vLLM and SGLang", errField, r.engine)
	case r.extraSalt != "":
		return src, fmt.Errorf("%w additionalsalt: it is not supported; engines' hashes have no such salt, and those of a request "+
			"have its cache_salt", errField)
	case r.tenant == loadableKey:
		return src, fmt.Errorf("%w tenant_id: no tenant may have this name", errField)
	}
	return router.Source{
		Endpoint: r.endpoint, Replay: r.replay, Type: engine, Model: r.model, Tenant: r.tenant, Engine: r.instance, Rank: int(r.rank),
		BlockSize: int(r.blockSize),
	}, nil
}

// register answers /register.
func (c *call) register() error {
	src, err := c.body.source()
	if err != nil {
		return err
	}
	if err := c.cfg.Service.Register(src); err != nil {
		if suppressed, ok := c.refusals.Admit(time.Now()); ok {
			c.log.Warn("source of holders not registered", "model", src.Model, "instance", src.Engine, "rank", src.Rank,
				"endpoint", src.Endpoint, "peer", c.http.RemoteAddr, "error", err.Error(), "suppressed", suppressed)
		}
		return err
	}
	c.log.Info("source of holders registered", "model", src.Model, "tenant", cmp.Or(src.Tenant, router.DefaultTenant),
		"instance", src.Engine, "rank", src.Rank, "endpoint", src.Endpoint, "replay", src.Replay, "peer", c.http.RemoteAddr)
	return c.json(changed{Status: "registered successfully", Instance: src.Engine})
}

// unregister answers /unregister. Without a rank it is about all ranks that were registered.
func (c *call) unregister() error {
	r := c.body
	if err := r.need(fieldModel, "modelname", r.model); err != nil {
		return err
	}
	if err := r.need(fieldInstance, "instance_id", r.instance); err != nil {
		return err
	}
	if _, known := engines[strings.ToLower(r.engine)]; !known {
		return fmt.Errorf("%w type: %.40q; known are vLLM and SGLang", errField, r.engine)
	}
	tenant := cmp.Or(r.tenant, router.DefaultTenant)
	ranks := []int{int(r.rank)}
	if r.seen&fieldRank == 0 {
		if ranks = c.ranksOf(tenant); len(ranks) == 0 {
			ranks = []int{0} // whose error says what is wrong
		}
	}
	reply := changed{Status: "unregistered successfully"}
	for _, rank := range ranks {
		if err := c.cfg.Service.Unregister(r.key(), fleet.ID{Engine: r.instance, Rank: rank}); err != nil {
			return err
		}
		c.log.Info("source of holders unregistered", "model", r.model, "tenant", tenant, "instance", r.instance, "rank", rank,
			"peer", c.http.RemoteAddr)
		reply.Removed = append(reply.Removed, fmt.Sprintf("%s|%s|%d", r.instance, tenant, rank))
	}
	return c.json(reply)
}

// ranksOf returns the ranks of the instance that were registered.
func (c *call) ranksOf(tenant string) (ranks []int) {
	for _, s := range c.cfg.Service.Status() {
		if s.Registered && s.Model == c.body.model && s.Tenant == tenant && s.Engine == c.body.instance {
			ranks = append(ranks, s.Rank)
		}
	}
	slices.Sort(ranks)
	return ranks
}
