package server

import (
	"fmt"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/api"
)

// SetLimits replaces the limits. Each connection takes them at its next message; none is closed by the change. If
// Config.Memory is set, its bound is to be changed before, and MaxMemory has no effect. It returns api.ErrConfig if a
// limit is negative.
func (s *Server) SetLimits(limits Limits) error {
	if err := limits.check(); err != nil {
		return err
	}
	limits = limits.inEffect(s.cfg, s.listeners)
	if s.ownAccount {
		s.memoryAccount.SetMax(limits.MaxMemory)
	}
	s.admission.Resize(admissionBounds(s.memoryAccount, s.backend, limits.MaxConnections))
	s.limits.Store(&limits)
	return nil
}

// SetListener replaces the settings of an address, as configured or as bound. They are in effect
// for every request that is served after it returns, also on open connections: those whose
// credential is gone are closed. It returns api.ErrConfig if the server does not listen there or the
// settings do not fit the address, and ErrNotReady before Start has returned.
func (s *Server) SetListener(address string, settings Settings) error {
	select {
	case <-s.booted:
	default:
		return fmt.Errorf("%w: not listening yet", ErrNotReady)
	}
	l, err := s.acceptor.findListener(address)
	if err != nil {
		return err
	}
	if err := (&Listener{Address: l.Address, Settings: settings}).check(); err != nil {
		return fmt.Errorf("%w: listen: %w", api.ErrConfig, err)
	}
	l.setSettings(settings)
	s.conns.wake(func(c *conn) bool { return c.protocol.(*session).listener == l }) // see session.wake
	return nil
}

// findListener returns the listener that is bound to an address, or was configured with it.
func (a *acceptor) findListener(address string) (*listener, error) {
	network, rest, err := api.SplitAddress(address)
	if err != nil {
		return nil, fmt.Errorf("%w: listen: %w", api.ErrConfig, err)
	}
	is := func(other string) bool {
		n, r, err := api.SplitAddress(other)
		return err == nil && n == network && r == rest
	}
	for i, l := range a.listeners {
		if is(l.Address) || is(a.server.listeners[i].Address) {
			return l, nil
		}
	}
	return nil, fmt.Errorf("%w: not listening on %q", api.ErrConfig, address)
}

// SetPools replaces the service of the server's own pool, nil for none, the named pools and what makes described ones,
// nil if none are accepted. A pool whose service is as before stays with its counters, and so do described pools,
// unless a named one takes their name. Connections of all others are closed when they have been answered what they have
// sent. It returns the pools that are gone, and api.ErrConfig if New would.
func (s *Server) SetPools(own *lookup.Service, named []ServedPool, accept func(coordinator.Pool) (*lookup.Service, error)) ([]GonePool, error) {
	ps := s.pools
	ps.setting.Lock()
	defer ps.setting.Unlock()
	next, err := ps.configured(own, named, accept)
	if err != nil {
		return nil, err
	}
	gone := ps.replace(next, accept)
	s.conns.wake(func(*conn) bool { return true })
	return gone, nil
}

// Pools returns the pools of the server, its own first and then by name. The caller owns the result.
func (s *Server) Pools() []ServedPool {
	var list []ServedPool
	for _, p := range s.pools.list() {
		list = append(list, ServedPool{Name: p.name, Service: p.service, Described: p.described})
	}
	return list
}
