package server

import (
	"fmt"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup"
)

// ServedPool is a pool that a server serves.
type ServedPool struct {
	Name    string // "" for the server's own
	Service *lookup.Service

	// The server sets these; it ignores those of Config.Pools.
	Digest    string // SHA-256 of its description, in hexadecimal, as in the reply to pool
	Described bool   // a client has described it, or DescribePool
}

// Pools returns the pools of the server, its own first and then by name. The caller owns the result.
func (s *Server) Pools() []ServedPool {
	var list []ServedPool
	for _, p := range s.pools.list() {
		list = append(list, p.served())
	}
	return list
}

// served returns what Pools tells of a pool.
func (p *pool) served() ServedPool {
	return ServedPool{Name: p.name, Digest: p.digest, Described: p.described, Service: p.service}
}

// DescribePool returns the pool of a description, and makes it if there is none, as if a client had
// described it under this name, which may be empty, and closed its connection. It fails if that would fail, and
// if there are Config.MaxPools described pools and none of this name: it removes no other pool.
func (s *Server) DescribePool(name string, described coordinator.Pool) (ServedPool, error) {
	if name != "" {
		if err := CheckPoolName(name); err != nil {
			return ServedPool{}, fmt.Errorf("server: %w", err)
		}
	}
	if !s.pools.hasRoom(name) {
		return ServedPool{}, fmt.Errorf("server: %w: %d", errPoolsFull, s.pools.max)
	}
	p, _, err := s.describe(name, described, nil)
	if err != nil {
		return ServedPool{}, fmt.Errorf("server: %w", err)
	}
	s.pools.move(p, nil) // describe has counted a connection
	return p.served(), nil
}
