package server

import (
	"time"

	"github.com/hitline/hitline/lookup/access"
)

// HasCredentials reports whether a listener has credentials now, so that not every peer may do everything.
func (s *Server) HasCredentials() bool {
	for _, rules := range s.currentRules() {
		if rules.Len() > 0 {
			return true
		}
	}
	return false
}

// IsAdmin reports whether a token of a listener is valid now, has every permission, and is bound to no pool.
// Its time does not depend on how much of the token is right: see access.Rules.FindToken. It does not count
// failures.
func (s *Server) IsAdmin(token []byte) bool {
	now, isAdmin := time.Now(), false
	for _, rules := range s.currentRules() {
		c := rules.FindToken(token)
		isAdmin = isAdmin || c != nil && c.Permissions&access.All == access.All && !c.IsTenant() && !c.Expired(now)
	}
	return isAdmin
}

// currentRules returns the rules of the listeners: before the server listens those that are configured.
func (s *Server) currentRules() (all []*access.Rules) {
	select {
	case <-s.booted:
		for _, l := range s.acceptor.listeners {
			all = append(all, l.settings.Load().Rules)
		}
	default:
		for i := range s.listeners {
			if rules := s.listeners[i].Rules; rules != nil {
				all = append(all, rules)
			}
		}
	}
	return all
}
