package server

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/access"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/tokens"
)

// DefaultMaxPools is how many described pools a server has at most.
const DefaultMaxPools = 64

// MaxPoolName is the length in bytes of the longest name of a pool.
const MaxPoolName = 255

// pool is a pool that the server serves. Its fields do not change, except those that
// pools.mu guards, pong, gone and evictionLogged.
type pool struct {
	name      string // "" for the server's own
	digest    string
	service   *lookup.Service
	hashLen   int  // of its hashes, 0 if any
	hashBlock int  // tokens of a hash
	described bool // it came into being by a description

	blockSizes []int // of its groups

	account *tokens.Account // nil if there is none; set before the pool is served

	pong           atomic.Pointer[pong] // of the reply to a ping, nil before the first
	gone           atomic.Bool          // SetPools has removed it
	evictionLogged bool                 // used by logEvictions alone

	connections int    // guarded by pools.mu
	idleSince   uint64 // guarded by pools.mu: a larger number is later
}

func newPool(name string, service *lookup.Service) *pool {
	config := service.Pool()
	p := &pool{name: name, digest: digestOf(config), service: service, hashLen: config.HashLen, hashBlock: config.HashBlockSize}
	for _, g := range config.Groups {
		p.blockSizes = append(p.blockSizes, g.BlockSize)
	}
	return p
}

// digestOf returns the digest of a pool with its defaults. Its retention interval, which is about
// stores, does not count.
func digestOf(pool coordinator.Pool) string {
	pool.RetentionInterval = nil
	text, _ := json.Marshal(pool) // cannot fail: New has accepted it
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// pools are the pools of a server. Safe for concurrent use.
type pools struct {
	max     int                   // described ones
	backend *lookup.SharedBackend // of all services, nil over the memory index
	logger  *slog.Logger
	open    func(*lookup.Service) *tokens.Account
	close   func(*tokens.Account)

	setting sync.Mutex // held while SetPools replaces them

	mu         sync.Mutex
	own        *pool                                           // of connections that ask for none, nil if there is none
	accept     func(coordinator.Pool) (*lookup.Service, error) // nil: none are accepted
	gone       []*pool                                         // that were replaced, until closeGone
	byName     map[string]*pool                                // own, too
	described  int                                             // how many of them are
	leaveCount uint64                                          // of idleSince
}

// inPoolName reports whether a pool's name may have the character.
func inPoolName(r rune) bool { return r > ' ' && r <= '~' && r != '"' }

// CheckPoolName returns an error if a pool cannot have this name.
func CheckPoolName(name string) error {
	if name == "" || len(name) > MaxPoolName || strings.ContainsFunc(name, func(r rune) bool { return !inPoolName(r) }) {
		return fmt.Errorf("a pool's name is 1 to %d printable ASCII characters without spaces and double quotes", MaxPoolName)
	}
	return nil
}

// Errors of pool requests. Peers get their texts.
var (
	errUnknownPool  = errors.New("no pool of this name")
	errNotAccepted  = errors.New("this server has other pools and accepts no further ones: configure it, or set accept_pools")
	errTooManyPools = errors.New("all described pools have connections, and there are max_pools of them")
	errPoolDiffers  = errors.New("the description differs from the")
	errNotOfTenant  = errors.New("no such pool among those that this connection may use")
)

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
	which := "pool that is configured"
	switch {
	case e.pool.described:
		which = fmt.Sprintf("pool %q that another connection has described", e.pool.name)
	case e.pool.name != "":
		which = fmt.Sprintf("pool %q that is configured", e.pool.name)
	}
	return fmt.Sprintf("%v %s: %s", errPoolDiffers, which, strings.Join(parts, "; "))
}

// Unwrap returns errPoolDiffers.
func (e *differsError) Unwrap() error { return errPoolDiffers }

// findByName returns the pool of a name, "" for the server's own, and counts a connection of it. c is the
// credential of the connection.
func (ps *pools) findByName(name string, c *access.Credential) (*pool, error) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if !c.MayUse(name) { // before it is looked up: see find
		return nil, errNotOfTenant
	}
	p := ps.byName[name]
	switch {
	case p == nil && c.IsTenant():
		return nil, errNotOfTenant
	case p == nil && name == "":
		return nil, errNoPool
	case p == nil:
		return nil, fmt.Errorf("%w: %q; describe it, or configure it under pools", errUnknownPool, name)
	}
	ps.moveLocked(nil, p)
	return p, nil
}

// get returns the pool that a client describes, and counts a connection of it: that of the name if one is
// given, otherwise one that does not differ. If there is none it makes one, if such are accepted. A tenant
// makes none.
func (ps *pools) get(name string, described *coordinator.Coordinator, c *access.Credential) (*pool, error) {
	if p, _, err := ps.findOrAdd(name, described, c, nil); p != nil || err != nil {
		return p, err
	}
	made, err := ps.makeDescribed(name, described) // without mu: it takes milliseconds for thousands of ranks
	if err != nil {
		return nil, err
	}
	made.account = ps.open(made.service)
	p, replaced, err := ps.findOrAdd(name, described, c, made)
	if p != made { // another connection may have made it meanwhile
		ps.close(made.account)
	}
	if replaced != nil {
		ps.close(replaced.account)
	}
	return p, err
}

// findOrAdd returns the pool of get. If there is none but one may be made, it adds made, and returns nil if
// that is nil. replaced is the pool that gave way to it, nil if none did.
func (ps *pools) findOrAdd(name string, described *coordinator.Coordinator, c *access.Credential, made *pool) (p, replaced *pool, err error) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p, nearest := ps.find(name, described, c)
	if p == nil {
		if replaced, err = ps.makeRoom(name, c, nearest); err != nil || made == nil {
			return nil, nil, err
		}
		ps.add(made, replaced)
		p = made
	}
	ps.moveLocked(nil, p)
	return p, replaced, nil
}

// find returns the pool that is described. If there is none it returns the one with the fewest differences
// of those that it has compared, nil if it has compared none. mu is held.
func (ps *pools) find(name string, described *coordinator.Coordinator, c *access.Credential) (*pool, *differsError) {
	digest := digestOf(described.Pool())
	var nearest *differsError
	for _, p := range ps.visibleTo(c) { // a tenant's alone: neither its answer nor its time tells of others
		if name != "" && p.name != name {
			continue
		}
		if p.described && name == "" && !c.IsTenant() { // there may be many: comparing takes longer
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
	return nil, nearest
}

// makeRoom returns the pool that a new one replaces, nil if there is room, or why none is made. nearest is
// of find. mu is held.
func (ps *pools) makeRoom(name string, c *access.Credential, nearest *differsError) (*pool, error) {
	hasName := name != "" && nearest != nil
	switch {
	case nearest != nil && c.IsTenant(), hasName && !nearest.pool.canBeRemoved():
		return nil, nearest
	case c.IsTenant():
		return nil, errNotOfTenant
	case ps.accept == nil && nearest != nil && !hasName:
		return nil, nearest
	case ps.accept == nil:
		return nil, errNotAccepted
	case hasName:
		return nearest.pool, nil
	case ps.described < ps.max:
		return nil, nil
	}
	if p := ps.leastRecentlyLeft(); p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("%w: %d", errTooManyPools, ps.max)
}

// canBeRemoved reports whether another pool may replace it. pools.mu is held.
func (p *pool) canBeRemoved() bool { return p.described && p.connections == 0 }

// leastRecentlyLeft returns the described pool that has been without connections for longest, nil if all
// have connections. mu is held.
func (ps *pools) leastRecentlyLeft() (oldest *pool) {
	for _, p := range ps.byName {
		if p.canBeRemoved() && (oldest == nil || p.idleSince < oldest.idleSince) {
			oldest = p
		}
	}
	return oldest
}

// visibleTo returns the pools that a peer with credential c may use, in the order of its credential or by
// name, the server's own first. mu is held.
func (ps *pools) visibleTo(c *access.Credential) (list []*pool) {
	if c.IsTenant() {
		return ps.ofTenant(c)
	}
	for _, name := range slices.Sorted(maps.Keys(ps.byName)) {
		list = append(list, ps.byName[name])
	}
	return list
}

// ofTenant returns the pools of a tenant that there are, in the order of its credential. mu is held.
func (ps *pools) ofTenant(c *access.Credential) (list []*pool) {
	for _, name := range c.Pools {
		if p := ps.byName[name]; p != nil && !slices.Contains(list, p) {
			list = append(list, p)
		}
	}
	return list
}

// moveToFirst moves a connection of a tenant from a pool, which may be nil, to that with which it
// begins. It returns that pool, nil if there is none.
func (ps *pools) moveToFirst(c *access.Credential, from *pool) (p *pool) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if list := ps.ofTenant(c); len(list) > 0 {
		p = list[0]
	}
	ps.moveLocked(from, p)
	return p
}

// makeDescribed makes the service of a described pool.
func (ps *pools) makeDescribed(name string, described *coordinator.Coordinator) (*pool, error) {
	accept := ps.acceptor()
	if accept == nil { // no more
		return nil, errNotAccepted
	}
	service, err := accept(described.Pool())
	if err != nil {
		return nil, err
	}
	if service.Backend().Shared() != ps.backend {
		return nil, fmt.Errorf("%w: the service of a described pool has another backend", api.ErrConfig)
	}
	p := newPool(name, service)
	p.described = true
	return p, nil
}

// add adds a described pool, and removes the replaced one, which may be nil. mu is held.
func (ps *pools) add(p, replaced *pool) {
	if replaced != nil {
		ps.remove(replaced)
	}
	if p.name == "" {
		p.name = ps.unusedName(p)
	}
	ps.byName[p.name] = p
	ps.described++
	config := p.service.Pool()
	ps.logger.Info("pool described", "pool", p.name, "model", config.ModelName, "vllm", config.FittingReleases(), "digest", p.digest[:8])
}

// remove removes a described pool. mu is held.
func (ps *pools) remove(p *pool) {
	delete(ps.byName, p.name)
	ps.described--
	ps.logger.Info("pool removed", "pool", p.name)
}

// unusedName returns a name for a pool that was described without one. mu is held.
func (ps *pools) unusedName(p *pool) string {
	config := p.service.Pool()
	model := "pool"
	if config.ModelName != "" {
		model = config.KeyModel()
	}
	model = strings.Map(func(r rune) rune {
		if !inPoolName(r) {
			return '_'
		}
		return r
	}, model)
	const maxModel = 100 // bytes
	base := model[:min(len(model), maxModel)] + "-" + p.digest[:8]
	for i, name := 1, base; ; i++ { // a client may have named another pool so
		if ps.byName[name] == nil {
			return name
		}
		name = base + "-" + strconv.Itoa(i)
	}
}

// move counts a connection that leaves one pool for another. Either may be nil.
func (ps *pools) move(from, to *pool) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.moveLocked(from, to)
}

func (ps *pools) moveLocked(from, to *pool) {
	if from != nil {
		from.connections--
		ps.leaveCount++
		from.idleSince = ps.leaveCount
	}
	if to != nil {
		to.connections++
	}
}

// names returns how many pools a peer with credential c may use, and the names of at most
// api.MaxPoolNames of them.
func (ps *pools) names(c *access.Credential) (count int64, names []string) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, p := range ps.visibleTo(c) {
		if count++; p.name != "" && len(names) < api.MaxPoolNames {
			names = append(names, p.name)
		}
	}
	return count, names
}

// number returns how many pools there are.
func (ps *pools) number() int {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return len(ps.byName)
}

// list returns the pools, the own one first and then by name.
func (ps *pools) list() []*pool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return ps.visibleTo(nil)
}

// acceptor returns what makes described pools, nil if none are accepted.
func (ps *pools) acceptor() func(coordinator.Pool) (*lookup.Service, error) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return ps.accept
}

// newPools returns the pools of cfg and the service of the server's own. It sets the backend
// of cfg.
func newPools(service *lookup.Service, cfg *Config) (*pools, error) {
	if cfg.MaxPools <= 0 {
		cfg.MaxPools = DefaultMaxPools
	}
	ps := &pools{accept: cfg.AcceptPool, max: cfg.MaxPools, logger: cfg.Logger}
	if service != nil {
		cfg.Backend = service.Backend().Shared()
	} else if len(cfg.Pools) > 0 && cfg.Pools[0].Service != nil {
		cfg.Backend = cfg.Pools[0].Service.Backend().Shared()
	}
	ps.backend = cfg.Backend
	var err error
	if ps.byName, err = ps.configured(service, cfg.Pools, cfg.AcceptPool); err != nil {
		return nil, err
	}
	ps.own = ps.byName[""]
	return ps, nil
}

// pong is the frame of the reply to a ping, and what it was made of.
type pong struct {
	draining bool
	limits   *Limits
	frame    []byte
}
