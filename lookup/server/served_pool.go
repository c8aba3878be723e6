package server

import "github.com/hitline/hitline/lookup"

// ServedPool is a pool that a server serves.
type ServedPool struct {
	Name    string // "" for the server's own
	Service *lookup.Service

	// Described says that a client has described the pool. The server sets it, and ignores that of Config.Pools.
	Described bool
}

// Pools returns the pools of the server, its own first and then by name. The caller owns the result.
func (s *Server) Pools() []ServedPool {
	var list []ServedPool
	for _, p := range s.pools.list() {
		list = append(list, ServedPool{Name: p.name, Service: p.service, Described: p.described})
	}
	return list
}
