package router

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// What Ready says a service waits for.
var (
	ErrLoading    = errors.New("what a peer holds is still being loaded")
	ErrCatchingUp = errors.New("sources are still catching up with their engines")
)

// DefaultPeerTimeout is long enough for a dump of 3 GB over a network of a gigabit.
const DefaultPeerTimeout = 30 * time.Second

// StartConfig says how a service starts.
type StartConfig struct {
	Sources []Source // of the configuration
	// Peers are services to start from, as http://HOST:PORT of their HTTP listener. The first that has a dump is
	// enough. Without peers, or if none has one, all sources begin anew.
	Peers []string
	// PeerTimeout bounds how long each peer may take, from the connection to the end of its dump, and again how long
	// Ready waits for the sources of the dump to catch up; 0: DefaultPeerTimeout.
	PeerTimeout time.Duration
	Token       string // for the peers, "" for none
}

// Start loads the dump of a peer and adds the sources of the configuration, in a service without sources. Sources that
// were registered at the peer are followed here, too, if Config.Allow has their endpoints. Holders without a source are
// dropped, see DropUnclaimed. Register, Unregister and WriteDump fail with ErrLoading until then, so what they say is newer
// than the dump.
//
// Start fails with ErrNotEmpty, as Add does, and with the error of ctx. That a peer or a source of its dump fails is
// logged only.
func (s *Service) Start(ctx context.Context, cfg StartConfig) error {
	if err := s.beginStart(&cfg); err != nil {
		return err
	}
	defer s.endStart(cfg.PeerTimeout)
	if err := s.loadFromPeers(ctx, &cfg); err != nil {
		return err
	}
	var errs []error
	for _, src := range cfg.Sources {
		if err := s.Add(src); err != nil {
			errs = append(errs, fmt.Errorf("source %q: %w", cmp.Or(src.Name, src.Endpoint), err))
		}
	}
	s.dropUnclaimed(s.followUnclaimed())
	return errors.Join(errs...)
}

// beginStart begins Start. Once the lock is free, sources are registered before or after it.
func (s *Service) beginStart(cfg *StartConfig) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	if len(s.sources()) > 0 {
		return ErrNotEmpty
	}
	cfg.PeerTimeout = cmp.Or(cfg.PeerTimeout, DefaultPeerTimeout)
	s.starting.Store(true)
	s.loading.Store(len(cfg.Peers) > 0)
	return nil
}

// errPeerConfigured is why a source of a dump is not followed that was not registered.
var errPeerConfigured = errors.New("it is one of the peer's configuration, and not of this one")

// followUnclaimed follows the sources of a dump that were registered, and that no source of the configuration has replaced.
// It returns why others are not followed.
func (s *Service) followUnclaimed() map[holderKey]error {
	s.changing.Lock()
	unclaimed := maps.Clone(s.unclaimed)
	s.changing.Unlock()
	reasons := map[holderKey]error{}
	byName := func(a, b holderKey) int { return strings.Compare(unclaimed[a].info.Name, unclaimed[b].info.Name) }
	for _, key := range slices.SortedFunc(maps.Keys(unclaimed), byName) {
		if reasons[key] = errPeerConfigured; unclaimed[key].info.Registered {
			reasons[key] = s.follow(unclaimed[key].info.Source, true, true)
		}
	}
	return reasons
}

func (s *Service) endStart(timeout time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.catchUpUntil = time.Now().Add(timeout)
	s.loading.Store(false)
	s.starting.Store(false)
}

// Ready returns nil once Start has returned and each source that goes on from a dump was not stale at some time since,
// or PeerTimeout has passed. Otherwise it fails with ErrLoading or ErrCatchingUp. Sources that begin anew are not waited
// for, nor are those that were stale at the peer, unless that was catching up itself. Without Start the service is ready.
func (s *Service) Ready() error {
	if s.starting.Load() {
		return ErrLoading
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, a := range s.active {
		a.catchesUp = a.catchesUp && a.holder.IsStale() && time.Now().Before(s.catchUpUntil)
		if a.catchesUp {
			n++
		}
	}
	if n > 0 {
		return fmt.Errorf("%w: %d of %d", ErrCatchingUp, n, len(s.active))
	}
	return nil
}
