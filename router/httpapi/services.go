package httpapi

import (
	"net/http"
	"time"

	"github.com/hitline/hitline/router"
)

// servicesReply is the reply of /services.
type servicesReply struct {
	Time    time.Time             `json:"time"` // of the times below
	Models  []router.ModelStatus  `json:"models"`
	Sources []router.SourceStatus `json:"sources"`
}

// services answers /services.
func (c *call) services() error {
	reply := servicesReply{Time: time.Now()}
	visible := map[router.ModelKey]bool{}
	for _, m := range c.cfg.Service.Models() {
		if c.access.mayUse(m.Pool) {
			visible[m.ModelKey] = true
			reply.Models = append(reply.Models, m)
		}
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
func (c *call) health() error { return c.json(statusReply{Status: "ok"}) }

// ready answers /ready.
func (c *call) ready() error {
	if c.cfg.Ready != nil {
		if err := c.cfg.Ready(); err != nil {
			return refuse(http.StatusServiceUnavailable, "not_ready", "%s", messageOf(err))
		}
	}
	return c.json(statusReply{Status: "ready"})
}

// openapi answers /openapi.yaml.
func (c *call) openapi() error {
	c.contentType = "application/yaml"
	c.reply.Write(openAPI)
	return nil
}
