package server

import (
	"fmt"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup"
)

// ServedPool is a pool that a server serves.
type ServedPool struct {
	Name      string // "" for the server's own
	Digest    string // SHA-256 of its description, in hexadecimal, as in the reply to pool
	Described bool   // a client has described it, or DescribePool
	Service   *lookup.Service
}

// Pools returns the pools of the server, its own first and then by name. The caller owns the result.
func (s *Server) Pools() []ServedPool {
	var list []ServedPool
	for _, p := range s.pools.snapshot() {
		list = append(list, p.served())
	}
	return list
}

// served returns what Pools tells of a pool.
func (p *pool) served() ServedPool {
	return ServedPool{Name: p.name, Digest: p.digest, Described: p.described, Service: p.service}
}

// DescribePool returns the pool of a description, and makes it if there is none, as if a client had
// described it under this name, which may be empty. It fails where that would fail.
func (s *Server) DescribePool(name string, described coordinator.Pool) (ServedPool, error) {
	if name != "" {
		if err := CheckPoolName(name); err != nil {
			return ServedPool{}, err
		}
	}
	if err := checkSize(&described); err != nil {
		return ServedPool{}, err
	}
	rules, err := coordinator.New(described)
	if err != nil {
		return ServedPool{}, fmt.Errorf("the described pool: %w", err)
	}
	p, err := s.pools.get(name, rules, nil, nil)
	if err != nil {
		return ServedPool{}, err
	}
	s.pools.move(p, nil) // get has counted a connection
	return p.served(), nil
}
