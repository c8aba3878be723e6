package router

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// What Ready says a service waits for.
var (
	ErrLoading    = errors.New("router: what a peer holds is still being loaded")
	ErrCatchingUp = errors.New("router: sources are still catching up with their engines")
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
	Token       string       // for the peers, "" for none
	Client      *http.Client // for the peers; nil: one without a proxy
}

// Start adds the sources of the configuration to a service without sources. Before that it loads the dump of a peer.
// Sources that were registered there are followed here, too, if Config.Allow has their endpoints. What no source fills
// is dropped. Register and WriteDump fail with ErrLoading until the dump is loaded.
//
// Start fails as Add does, and with the error of ctx. That a peer or a source of its dump fails is logged only.
func (s *Service) Start(ctx context.Context, cfg StartConfig) error {
	cfg.PeerTimeout = cmp.Or(cfg.PeerTimeout, DefaultPeerTimeout)
	s.replica.beginStart(len(cfg.Peers) > 0)
	defer s.replica.endStart(cfg.PeerTimeout)
	if err := s.loadFromPeers(ctx, &cfg); err != nil {
		return err
	}
	var errs []error
	for _, src := range cfg.Sources {
		if err := s.Add(src); err != nil {
			errs = append(errs, fmt.Errorf("source %q: %w", cmp.Or(src.Name, src.Endpoint), err))
		}
	}
	s.replica.endLoading()
	s.followLoaded()
	s.DropLoaded()
	return errors.Join(errs...)
}

// followLoaded follows the sources of a dump that were registered.
func (s *Service) followLoaded() {
	for _, info := range s.loadedSources() {
		if !info.Registered {
			s.log.Info("router: a source of the peer's configuration is not one of ours", "source", info.Name)
			continue
		}
		if err := s.Register(info.Source); err != nil {
			s.log.Warn("router: a source that is registered at the peer is not followed", "source", info.Name, "reason", err)
		}
	}
}

// loadedSources returns the sources of a dump whose holders no source fills yet, by name.
func (s *Service) loadedSources() []sourceInfo {
	s.changing.Lock()
	defer s.changing.Unlock()
	var list []sourceInfo
	for l := range maps.Values(s.loaded) {
		list = append(list, l.info)
	}
	slices.SortFunc(list, func(a, b sourceInfo) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// Ready returns nil once Start has returned and each source that goes on from a dump was not stale at some time since,
// or PeerTimeout has passed. Otherwise it fails with ErrLoading or ErrCatchingUp. Sources that begin anew are not waited
// for, nor are those that were stale at the peer, unless that was catching up itself. Without Start the service is ready.
func (s *Service) Ready() error {
	if waiting, err := s.replica.waiting(); !waiting {
		return err
	}
	stale := map[string]bool{}
	for _, st := range s.Status() {
		stale[st.Name] = st.Stale
	}
	return s.replica.update(stale, time.Now())
}

// replicaState is how far Start is.
type replicaState struct {
	mu       sync.Mutex
	starting bool
	loading  bool
	resumed  map[string]struct{} // sources that go on from a dump and have not caught up
	total    int                 // of them, at the beginning
	until    time.Time           // when they are not waited for any longer
}

func (r *replicaState) beginStart(loading bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.starting, r.loading = true, loading
}

func (r *replicaState) endLoading() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.loading = false
}

func (r *replicaState) endStart(timeout time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.starting, r.loading = false, false
	r.total, r.until = len(r.resumed), time.Now().Add(timeout)
}

// loadingError returns ErrLoading while a dump is loaded.
func (r *replicaState) loadingError() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.loading {
		return ErrLoading
	}
	return nil
}

// addResumed adds a source that goes on from a dump.
func (r *replicaState) addResumed(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.resumed == nil {
		r.resumed = map[string]struct{}{}
	}
	r.resumed[name] = struct{}{}
}

// awaits reports whether a source has not caught up that is waited for.
func (r *replicaState) awaits(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.resumed[name]
	return ok
}

// waiting reports whether sources may not have caught up yet. It fails with ErrLoading until Start has returned.
func (r *replicaState) waiting() (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.starting {
		return false, ErrLoading
	}
	return len(r.resumed) > 0, nil
}

// update removes the sources that have caught up, and those that are gone. stale says which of the sources are stale.
func (r *replicaState) update(stale map[string]bool, now time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name := range r.resumed {
		if !stale[name] {
			delete(r.resumed, name)
		}
	}
	if len(r.resumed) > 0 && !now.Before(r.until) {
		clear(r.resumed)
	}
	if n := len(r.resumed); n > 0 {
		return fmt.Errorf("%w: %d of %d", ErrCatchingUp, n, r.total)
	}
	return nil
}
