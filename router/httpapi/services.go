package httpapi

import (
	"net/http"

	"github.com/hitline/hitline/router"
)

// modelState and holderState are in the reply to /services.
type modelState struct {
	Model      string        `json:"model"`
	Tenant     string        `json:"tenant"`
	BlockSize  int           `json:"block_size"`
	Configured bool          `json:"configured"`
	Pool       *string       `json:"pool,omitempty"`
	Blocks     int64         `json:"blocks"`
	Entries    int64         `json:"entries"`
	Bytes      int64         `json:"bytes"`
	MaxBytes   int64         `json:"max_bytes"`
	Holders    []holderState `json:"holders"`
}

type holderState struct {
	Instance string `json:"instance"`
	Rank     int    `json:"rank"`
	Stale    bool   `json:"stale"`
	Entries  int    `json:"entries"`
}

// services answers /services.
func (c *call) services() error {
	var reply struct {
		Models  []modelState          `json:"models"`
		Sources []router.SourceStatus `json:"sources"`
	}
	reply.Models, reply.Sources = []modelState{}, []router.SourceStatus{}
	visible := map[router.ModelKey]bool{}
	for _, m := range c.cfg.Service.Models() {
		if !c.access.mayUse(m.Pool) {
			continue
		}
		visible[m.ModelKey] = true
		state := modelState{
			Model: m.Name, Tenant: m.Tenant, BlockSize: m.BlockSize, Configured: m.Configured, Pool: m.Pool, Blocks: m.Blocks,
			Entries: m.Entries, Bytes: m.Bytes, MaxBytes: m.MaxBytes, Holders: make([]holderState, 0, len(m.Holders)),
		}
		for _, h := range m.Holders {
			state.Holders = append(state.Holders, holderState{h.Engine, h.Rank, h.Stale, h.Blocks})
		}
		reply.Models = append(reply.Models, state)
	}
	for _, s := range c.cfg.Service.Status() {
		if visible[router.ModelKey{Tenant: s.Tenant, Name: s.Model}] {
			if !c.access.Admin {
				hideEndpoint(&s)
			}
			reply.Sources = append(reply.Sources, s)
		}
	}
	return c.json(reply)
}

// hideEndpoint removes where an engine publishes, and what answered there: that is for administrators.
func hideEndpoint(s *router.SourceStatus) {
	if s.Name == s.Endpoint { // a source without a name
		s.Name = ""
	}
	s.Endpoint, s.LastError = "", ""
}

// health answers /health: the server lives.
func (c *call) health() error { return c.json(changed{Status: "ok"}) }

// ready answers /ready.
func (c *call) ready() error {
	if c.cfg.Ready != nil {
		if err := c.cfg.Ready(); err != nil {
			return refuse(http.StatusServiceUnavailable, "not_ready", "%v", err)
		}
	}
	return c.json(changed{Status: "ready"})
}

// openapi answers /openapi.yaml.
func (c *call) openapi() error {
	c.kind = "application/yaml"
	c.reply.Write(OpenAPI)
	return nil
}
