package httpapi

import (
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/hitline/hitline/router"
	"github.com/hitline/hitline/router/fleet"
)

// maxRegistration bounds the body of a registration in bytes.
const maxRegistration = 64 << 10

// registration is the body of /register and /unregister.
type registration struct {
	router.Source
	modelNames
	foreign
	Rank     *int   `json:"dp_rank"`   // nil: 0, or all of /unregister
	LoRAName string `json:"lora_name"` // not used: the hashes of a block tell its adapter
}

// statusReply is the reply of operations that only say how they went.
type statusReply struct {
	Status  string   `json:"status"`
	Engine  string   `json:"instance_id,omitempty"`
	Removed []string `json:"removed_instances,omitempty"`
}

// readRegistration reads the body of /register and /unregister.
func (c *call) readRegistration(body io.Reader) (err error) {
	r := &c.registration
	if err := c.decode(body, r); err != nil {
		return err
	}
	if r.Model, err = r.or(r.Model); err != nil {
		return err
	}
	r.Tenant = cmp.Or(r.Tenant, router.DefaultTenant)
	if r.Rank != nil {
		r.Source.Rank = *r.Rank
	}
	return nil
}

// register answers /register.
func (c *call) register() error {
	src := c.registration.Source
	log := c.log.With("model", src.Model, "tenant", src.Tenant, "engine", src.Engine, "rank", src.Rank, "endpoint", src.Endpoint, "replay", src.Replay,
		"peer", c.http.RemoteAddr)
	level := slog.LevelInfo
	if c.cfg.Service.Follows(src) { // some register again and again
		level = slog.LevelDebug
	}
	if err := c.cfg.Service.Register(src); err != nil {
		if suppressed, ok := c.refusals.Admit(time.Now()); ok {
			log.Warn("source not registered", "error", messageOf(err), "suppressed", suppressed)
		}
		return err
	}
	log.Log(c.ctx, level, "source registered")
	return c.json(statusReply{Status: "registered successfully", Engine: src.Engine})
}

// unregister answers /unregister.
func (c *call) unregister() error {
	src := &c.registration.Source
	ranks := []int{src.Rank}
	if c.registration.Rank == nil {
		if registered := c.cfg.Service.RegisteredRanks(src.ModelKey(), src.Engine); len(registered) > 0 {
			ranks = registered // otherwise the error of rank 0 says what is wrong
		}
	}
	reply := statusReply{Status: "unregistered successfully"}
	for _, rank := range ranks {
		if err := c.cfg.Service.Unregister(src.ModelKey(), fleet.ID{Engine: src.Engine, Rank: rank}); err != nil {
			return err
		}
		c.log.Info("source unregistered", "model", src.Model, "tenant", src.Tenant, "engine", src.Engine, "rank", rank, "peer", c.http.RemoteAddr)
		reply.Removed = append(reply.Removed, fmt.Sprintf("%s|%s|%d", src.Engine, src.Tenant, rank))
	}
	return c.json(reply)
}
