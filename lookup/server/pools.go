package server

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup"
)

// NamedPool is one of several pools of a server.
type NamedPool struct {
	Name    string
	Service *lookup.Service
}

// DefaultMaxPools is how many described pools a server has at most.
const DefaultMaxPools = 64

// MaxPoolName is the length in bytes of the longest name of a pool.
const MaxPoolName = 255

// pool is a pool that the server serves. Its fields do not change, except those that
// pools.mu guards.
type pool struct {
	name      string // "" for the server's own
	label     string // of its metrics: see Server.PoolStats
	digest    string
	service   *lookup.Service
	remote    *lookup.Remote // nil over the memory index
	hashLen   int            // of its hashes, 0 if any
	described bool           // it came into being by a description

	connections int    // guarded by pools.mu
	idleSince   uint64 // guarded by pools.mu: a larger number is later
}

func newPool(name string, service *lookup.Service) *pool {
	return &pool{name: name, label: name, digest: digestOf(service.Pool()), service: service, remote: service.Remote(), hashLen: service.Pool().HashLen}
}

// digestOf returns the digest of a pool with its defaults.
func digestOf(pool coordinator.Pool) string {
	text, _ := json.Marshal(pool) // cannot fail: New has accepted it
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// pools are the pools of a server. Safe for concurrent use.
type pools struct {
	own    *pool // of connections that ask for none, nil if there is none
	accept func(coordinator.Pool) (*lookup.Service, error)
	max    int // described ones
	logger *slog.Logger

	mu     sync.Mutex
	byName map[string]*pool // all but own
	labels map[string]bool  // of described pools, at most max
	clock  uint64           // of idleSince
}

// newPools returns the pools of cfg and the service of the server's own. It sets the backend
// of cfg.
func newPools(service *lookup.Service, cfg *Config) (*pools, error) {
	if service == nil && len(cfg.Pools) == 0 && cfg.AcceptPool == nil {
		return nil, fmt.Errorf("%w: no service", ErrConfig)
	}
	if cfg.MaxPools <= 0 {
		cfg.MaxPools = DefaultMaxPools
	}
	ps := &pools{accept: cfg.AcceptPool, max: cfg.MaxPools, logger: cfg.Logger, byName: map[string]*pool{}, labels: map[string]bool{}}
	use := func(service *lookup.Service) {
		if remote := service.Remote(); remote != nil {
			cfg.Backend = remote.SharedBackend
		}
	}
	if service != nil {
		ps.own = newPool("", service)
		use(service)
	}
	for _, named := range cfg.Pools {
		switch {
		case named.Service == nil:
			return nil, fmt.Errorf("%w: pool %q has no service", ErrConfig, named.Name)
		case CheckPoolName(named.Name) != nil:
			return nil, fmt.Errorf("%w: pool %q: %w", ErrConfig, named.Name, CheckPoolName(named.Name))
		case ps.byName[named.Name] != nil:
			return nil, fmt.Errorf("%w: two pools are named %q", ErrConfig, named.Name)
		}
		ps.byName[named.Name] = newPool(named.Name, named.Service)
		use(named.Service)
	}
	return ps, nil
}

// CheckPoolName returns an error if a pool cannot have this name.
func CheckPoolName(name string) error {
	if name == "" || len(name) > MaxPoolName || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' }) {
		return fmt.Errorf("a pool's name is 1 to %d printable ASCII characters without spaces and quotes", MaxPoolName)
	}
	return nil
}

// Errors of pool requests. Peers get their texts.
var (
	errUnknownPool   = errors.New("no pool of this name")
	errNotAccepted   = errors.New("this server has other pools and accepts no further ones: configure it, or set accept_pools")
	errTooManyPools  = errors.New("all described pools have connections, and there are max_pools of them")
	errPoolTooLarge  = errors.New("too many groups and ranks for a described pool")
	errPoolDiffers   = errors.New("the described pool is not the one that is")
	errPoolTurnLimit = errors.New("too many pool requests at a time")
)

// maxDescribedRanks bounds groups times ranks of a described pool: a millisecond to make.
const maxDescribedRanks = 4096

// differsError is an errPoolDiffers with the fields.
type differsError struct {
	pool        *pool // that has the name, or differs least
	differences []coordinator.Difference
}

// Error names each field with both values.
func (e *differsError) Error() string {
	parts := make([]string, len(e.differences))
	for i, d := range e.differences {
		parts[i] = d.String()
	}
	how := "configured"
	if e.pool.described {
		how = "described by others"
	}
	if e.pool.name != "" {
		how += fmt.Sprintf(" as pool %q", e.pool.name)
	}
	return fmt.Sprintf("%v %s: %s", errPoolDiffers, how, strings.Join(parts, "; "))
}

// Unwrap returns errPoolDiffers.
func (e *differsError) Unwrap() error { return errPoolDiffers }

// byNameOnly returns the pool of a name.
func (ps *pools) byNameOnly(name string) (*pool, error) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if p := ps.byName[name]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("%w: %q", errUnknownPool, name)
}

// get returns the pool that a client describes: that of the name if one is given, otherwise
// one that does not differ. If there is none it makes one, if such are accepted.
func (ps *pools) get(name string, described *coordinator.Coordinator) (*pool, error) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	var p *pool
	var err error
	if name != "" {
		p, err = ps.findNamed(name, described)
	} else {
		p, err = ps.findEqual(described)
	}
	if p != nil || err != nil {
		return p, err
	}
	return ps.add(name, described)
}

// findNamed returns the pool of a name, nil if there is none, and an error if it differs. A
// described one without connections then gives way. mu is held.
func (ps *pools) findNamed(name string, described *coordinator.Coordinator) (*pool, error) {
	p := ps.byName[name]
	if p == nil {
		return nil, nil
	}
	differences := p.service.Compare(described)
	switch {
	case len(differences) == 0:
		return p, nil
	case p.described && p.connections == 0:
		ps.remove(p)
		return nil, nil
	}
	return nil, &differsError{p, differences}
}

// findEqual returns a pool that does not differ, nil if there is none. If none would be made
// then, it returns the least that differs. mu is held.
func (ps *pools) findEqual(described *coordinator.Coordinator) (*pool, error) {
	digest := digestOf(described.Pool())
	var nearest *differsError
	for _, p := range ps.all() {
		if p.described {
			if p.digest == digest {
				return p, nil
			}
			continue
		}
		differences := p.service.Compare(described)
		if len(differences) == 0 {
			return p, nil
		}
		if nearest == nil || len(differences) < len(nearest.differences) {
			nearest = &differsError{p, differences}
		}
	}
	if ps.accept == nil && nearest != nil {
		return nil, nearest
	}
	return nil, nil
}

// all returns the pools, the own one first and then by name. mu is held.
func (ps *pools) all() []*pool {
	var all []*pool
	if ps.own != nil {
		all = append(all, ps.own)
	}
	names := make([]string, 0, len(ps.byName))
	for name := range ps.byName {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		all = append(all, ps.byName[name])
	}
	return all
}

// add makes the service of a described pool, and adds it under the name. If there are max
// described ones, one without connections gives way. mu is held.
func (ps *pools) add(name string, described *coordinator.Coordinator) (*pool, error) {
	if ps.accept == nil {
		return nil, errNotAccepted
	}
	ranks := 0
	for g := range described.NumGroups() {
		ranks += len(described.Ranks(g))
	}
	if ranks > maxDescribedRanks {
		return nil, fmt.Errorf("%w: %d, at most %d", errPoolTooLarge, ranks, maxDescribedRanks)
	}
	if err := ps.makeRoom(); err != nil {
		return nil, err
	}
	service, err := ps.accept(described.Pool())
	if err != nil {
		return nil, err
	}
	p := newPool(name, service)
	if p.described = true; p.name == "" {
		p.name = ps.unusedName(p)
	}
	if p.label = p.name; !ps.labels[p.label] {
		if len(ps.labels) >= ps.max {
			p.label = otherPools
		} else {
			ps.labels[p.label] = true
		}
	}
	ps.byName[p.name] = p
	config := service.Pool()
	ps.logger.Info("pool described", "pool", p.name, "model", config.ModelName, "vllm", config.FittingReleases(), "digest", p.digest[:8])
	return p, nil
}

// remove removes a described pool. mu is held.
func (ps *pools) remove(p *pool) {
	delete(ps.byName, p.name)
	ps.logger.Info("pool removed", "pool", p.name)
}

// otherPools is the label of the pools that have none of their own.
const otherPools = "other"

// unusedName returns a name for a pool that was described without one. mu is held.
func (ps *pools) unusedName(p *pool) string {
	model := p.service.Pool().ModelName
	if model == "" {
		model = "pool"
	}
	model = strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' || r == '"' {
			return '_'
		}
		return r
	}, model[strings.LastIndexByte(model, '/')+1:])
	const most = 100              // bytes of the model's name
	for digits := 8; ; digits++ { // a client may have named another pool so
		name := model[:min(len(model), most)] + "-" + p.digest[:min(digits, len(p.digest))]
		if ps.byName[name] == nil {
			return name
		}
		if digits == len(p.digest) {
			model += "_"
			digits = 8
		}
	}
}

// makeRoom removes a described pool if there are max of them. mu is held.
func (ps *pools) makeRoom() error {
	var oldest *pool
	count := 0
	for _, p := range ps.byName {
		if !p.described {
			continue
		}
		count++
		if p.connections == 0 && (oldest == nil || p.idleSince < oldest.idleSince) {
			oldest = p
		}
	}
	switch {
	case count < ps.max:
		return nil
	case oldest == nil:
		return fmt.Errorf("%w: %d", errTooManyPools, ps.max)
	}
	ps.remove(oldest)
	return nil
}

// move counts a connection that leaves one pool for another. Either may be nil.
func (ps *pools) move(from, to *pool) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if from != nil {
		from.connections--
		ps.clock++
		from.idleSince = ps.clock
	}
	if to != nil {
		to.connections++
	}
}

// count returns how many pools there are.
func (ps *pools) count() int {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	n := len(ps.byName)
	if ps.own != nil {
		n++
	}
	return n
}

// snapshot returns the pools, the own one first and then by name.
func (ps *pools) snapshot() []*pool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return ps.all()
}
