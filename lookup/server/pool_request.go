package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/access"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/server/internal/description"
	"github.com/hitline/hitline/netproto"
)

// Requests that change the pool of a connection, and its other ways to one.

// runPool finds the described pool, or makes it.
func runPool(_ context.Context, j *job) (err error) {
	j.setup, err = j.session.shared.describedPool(j.q.Description, j.credential)
	return err
}

// applyPool makes the found pool the one that later requests are about.
func applyPool(s *session, j *job) error {
	s.shared.pools.move(s.pool, nil)
	s.setPool(j.setup.pool, j.setup.rules)
	j.setup, s.asks.asker = nil, j.setup.asker
	reply := s.pool.reply(s.service.Coordinator())
	reply.ResetRefused = resetRefused(s.service, &s.authorization)
	return j.doneJSON(reply)
}

// resetRefused returns why a reset would be refused on this connection, empty if it would not.
func resetRefused(service *lookup.Service, a *authorization) string {
	err := service.Backend().CheckReset()
	if !a.permissions.Allows(netproto.TagReset) {
		err = a.notAllowed(netproto.TagReset)
	}
	if err == nil {
		return ""
	}
	return err.Error()
}

// undoSetup applies the refusal of a pool or auth request: the connection then has no pool, or the credential
// with which it began. Requests that are already on their way must not be answered about another pool, or by
// another credential.
func (js *jobs) undoSetup(j *job) {
	s := js.session
	switch {
	case j.q.Tag == netproto.TagPool:
		s.leavePool()
	case j.q.Tag == netproto.TagAuth && !errors.Is(j.err, errNotAuthenticated):
		_ = s.failAuth(nameOf(s.credential), j.err) // the peer is told j.err, whose code says whether to try again
	}
}

// describedPool returns the pool of a request, one that there is or a new one, with the described rules, nil if it was
// only named. A connection of the pool is counted. c is the credential of the connection, nil if it has none.
func (s *shared) describedPool(text []byte, c *access.Credential) (*poolSetup, error) {
	d, err := description.Parse(text)
	if err != nil {
		return nil, err
	}
	if d.HasName && !(d.OnlyName && d.Name == "") {
		if err := CheckPoolName(d.Name); err != nil {
			return nil, err
		}
	}
	setup := &poolSetup{asker: d.Asker}
	if d.OnlyName {
		setup.pool, err = s.pools.findByName(d.Name, c)
	} else if setup.rules, err = d.Rules(); err == nil {
		setup.pool, err = s.pools.get(d.Name, setup.rules, c)
	}
	return setup, err
}

// renewWords are the words for api.Pool.Renew.
var renewWords = [...]string{lookup.RenewAuto: "auto", lookup.RenewAlways: "always", lookup.RenewNever: ""}

// reply returns the pool as the peer is told it, with the rules of its connection.
func (p *pool) reply(rules *coordinator.Coordinator) api.Pool {
	config := rules.Pool()
	r := api.Pool{
		Name: p.name, Digest: p.digest, VLLM: config.FittingReleases(),
		Alignment: rules.Alignment(), HashLen: p.hashLen,
		TailBoundaries: rules.HasTailBoundaries(), Backend: "memory", Pool: config,
	}
	if b := p.service.Backend(); b != nil {
		info := b.Info()
		r.Backend, r.LeaseMS, r.BackendTimeoutMS = b.Shared().Name(), info.LeaseLeft.Milliseconds(), info.Timeout.Milliseconds()
		r.Renew = renewWords[info.Renewal]
	}
	var prefixes []string
	for g := range rules.NumGroups() {
		group, ranks := rules.Group(g), rules.Ranks(g)
		for _, rank := range ranks {
			prefixes = append(prefixes, strings.TrimSuffix(rules.KeyPrefix(g, rank), "@"))
		}
		first := len(prefixes) - len(ranks)
		r.Groups = append(r.Groups, api.PoolGroup{
			Kind: group.Kind, BlockSize: group.BlockSize, Stride: rules.Stride(g), Ranks: len(ranks), KeyPrefix: prefixes[first],
		})
	}
	sum := sha256.Sum256([]byte(strings.Join(prefixes, "\n")))
	r.PrefixesSHA256 = hex.EncodeToString(sum[:])
	return r
}
