package statuspage

import (
	"strings"
	"time"

	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/server"
	"github.com/hitline/hitline/lookup/snapshot"
)

// maxPools and maxConnections bound the pools and connections that are listed.
const maxPools, maxConnections = 100, 100

// status is the reply to /status.
type status struct {
	Ready          bool                   `json:"ready"`
	NotReadyReason string                 `json:"not_ready_reason"` // empty if it is ready
	Version        string                 `json:"version"`
	Instance       string                 `json:"instance"`
	StartTime      time.Time              `json:"start_time"`
	UptimeSeconds  float64                `json:"uptime_seconds"`
	Kernel         string                 `json:"kernel"`
	Backend        string                 `json:"backend"`
	BackendState   string                 `json:"backend_state"` // of the breaker, empty over memory
	Pools          []poolStatus           `json:"pools"`         // at most maxPools; Stat.Pools has their number
	Latency        latency                `json:"latency"`
	Connections    *connections           `json:"connections,omitempty"` // nil if TokenNeeded
	Refusals       []server.LoggedRefusal `json:"refusals,omitzero"`     // nil if TokenNeeded
	Snapshot       *snapshot.Status       `json:"snapshot"`              // nil if there are none
	Router         any                    `json:"router,omitempty"`      // nil if there is none
	TokenNeeded    bool                   `json:"token_needed"`
	Stat           api.Stat               `json:"stat"` // of all pools together
}

// poolStatus is one pool. Its counters are as in api.Stat.
type poolStatus struct {
	Name          string   `json:"name"` // "" for the server's own
	Described     bool     `json:"described"`
	Model         string   `json:"model_name"`
	VLLM          string   `json:"vllm"`
	HashBlockSize int      `json:"hash_block_size"` // tokens of a hash
	Entries       int64    `json:"entries"`
	MaxEntries    int64    `json:"max_entries"`
	Bytes         int64    `json:"bytes"`
	MaxBytes      int64    `json:"max_bytes"`
	Evicted       int64    `json:"evicted"`
	Lookups       int64    `json:"lookups"`
	HitTokens     int64    `json:"hit_tokens"`
	MissTokens    int64    `json:"miss_tokens"`
	Recent        recent   `json:"recent"` // the last five to six minutes
	Minutes       []minute `json:"minutes"`
}

type connections struct {
	Total int                 `json:"total"` // that are open
	Shown int                 `json:"shown"` // in List
	List  []server.Connection `json:"list"`  // those with the most requests
}

// currentStatus returns the status of the server. With all it includes what only an administrator may
// see.
func (p *Page) currentStatus(all bool) *status {
	instance, stat := p.server.Instance(), p.server.TotalStat()
	st := &status{
		Version: instance.Version, Instance: instance.ID, StartTime: instance.StartTime, UptimeSeconds: time.Since(instance.StartTime).Seconds(),
		Kernel: stat.Kernel, Backend: stat.Backend, BackendState: stat.BackendState, TokenNeeded: !all, Stat: stat,
		Pools: []poolStatus{}, Latency: p.sampler.latency(),
	}
	st.NotReadyReason = reasonOf(p.server.Ready())
	st.Ready = st.NotReadyReason == ""
	pools := p.server.Pools()
	for _, pool := range pools[:min(len(pools), maxPools)] {
		st.Pools = append(st.Pools, p.poolStatus(&pool))
	}
	if p.options.Snapshot != nil {
		st.Snapshot = p.options.Snapshot()
	}
	if p.options.Router != nil {
		st.Router = p.options.Router()
	}
	if all {
		total, list := p.server.Connections(maxConnections)
		st.Connections = &connections{total, len(list), append([]server.Connection{}, list...)}
		st.Refusals = append([]server.LoggedRefusal{}, p.server.Refusals()...)
	}
	return st
}

// reasonOf returns the reason of an error of Server.Ready, empty without one.
func reasonOf(err error) string {
	if err == nil {
		return ""
	}
	return strings.TrimPrefix(err.Error(), server.ErrNotReady.Error()+": ")
}

// poolStatus returns the status of one pool.
func (p *Page) poolStatus(pool *server.ServedPool) poolStatus {
	st, config := pool.Service.Stat(), pool.Service.Pool()
	recent, minutes := p.sampler.pool(pool.Service, countersOf(&st))
	return poolStatus{
		Name: pool.Name, Described: pool.Described, Model: config.ModelName, VLLM: st.VLLM, HashBlockSize: config.HashBlockSize,
		Entries: st.Entries, MaxEntries: st.MaxEntries, Bytes: st.Bytes, MaxBytes: st.MaxBytes, Evicted: st.Evicted,
		Lookups: st.Lookups, HitTokens: st.HitTokens, MissTokens: st.MissTokens,
		Recent: recent, Minutes: minutes,
	}
}
