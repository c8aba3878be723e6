package server

import (
	"slices"
	"time"
)

// HasCredentials reports whether a listener asks for credentials now: it has a list of them, even one from
// which all were removed, or takes clients with a certificate alone.
func (s *Server) HasCredentials() bool {
	return slices.ContainsFunc(s.currentSettings(), func(of Settings) bool {
		return of.Rules != nil && of.Rules.IsListed() || of.TLS != nil && of.TLS.ClientCAs != nil
	})
}

// IsAdmin reports whether a token of a listener is valid now, has every permission, and is bound to no pool.
// Its time does not depend on how much of the token is right: see access.Rules.FindToken. It does not count
// failures.
func (s *Server) IsAdmin(token []byte) bool {
	now, isAdmin := time.Now(), false
	for _, of := range s.currentSettings() {
		if of.Rules == nil {
			continue
		}
		c := of.Rules.FindToken(token)
		isAdmin = isAdmin || c != nil && c.IsAdmin() && !c.Expired(now)
	}
	return isAdmin
}

// currentSettings returns the settings of the listeners, those of Config.OtherListeners included: before the server
// listens those that are configured, whose Rules may be nil.
func (s *Server) currentSettings() (all []Settings) {
	if s.cfg.OtherListeners != nil {
		all = s.cfg.OtherListeners()
	}
	select {
	case <-s.booted:
		for _, l := range s.acceptor.listeners {
			all = append(all, *l.settings.Load())
		}
	default:
		for i := range s.listeners {
			all = append(all, s.listeners[i].Settings)
		}
	}
	return all
}
