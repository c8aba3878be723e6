package server

import (
	"bytes"
	"crypto/sha256"
	"encoding"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/fielderror"
	"github.com/hitline/hitline/lookup/access"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/netproto"
)

// description is the JSON of a pool request: the fields of the pool, and its name.
type description struct {
	Name *string `json:"name"`
	coordinator.Pool
}

// changePool makes the described pool the one that later requests are about, and returns the
// last frame of the reply. If it fails the connection has no pool: requests that are already
// on their way must not be answered about another.
func (s *session) changePool(text []byte) ([]byte, error) {
	p, described, err := s.server.describedPool(text, s.credential, s.pool)
	if err != nil {
		s.leavePool()
		return nil, err
	}
	s.setPool(p, described)
	return encodeJSON(p.reply(s.rules))
}

// leavePool leaves the connection without a pool.
func (s *session) leavePool() {
	s.server.pools.move(s.pool, nil)
	s.setPool(nil, nil)
}

// setPool makes p, which may be nil, the pool of the connection. The pools have counted it.
// described are the rules that the client has described, nil if it has named the pool or none.
func (s *session) setPool(p *pool, described *coordinator.Coordinator) {
	s.pool, s.rules = p, nil
	s.stats.pool.Store(p)
	if p == nil {
		return
	}
	s.reader.SetAlignment(p.service.Alignment())
	s.rules = p.service.Coordinator()
	if described != nil {
		s.rules = withRetentionOf(s.rules, described)
	}
}

// withRetentionOf returns rules with the retention interval that a client has described. Engines
// that differ in nothing else share a pool, and each stores by its own.
func withRetentionOf(rules, described *coordinator.Coordinator) *coordinator.Coordinator {
	a, b := rules.Pool().RetentionInterval, described.Pool().RetentionInterval
	if a == b || a != nil && b != nil && *a == *b {
		return rules
	}
	if other, err := rules.WithRetentionInterval(b); err == nil { // which the description has checked
		return other
	}
	return rules
}

// checkPool returns errNoPool if a request needs a pool and the connection has none.
func (s *session) checkPool(tag netproto.Tag) error {
	switch tag {
	case netproto.TagPing, netproto.TagStat, netproto.TagPool, netproto.TagAuth:
		return nil
	}
	if s.pool == nil {
		return errNoPool
	}
	return nil
}

// describedPool returns the pool of a request, one that there is or a new one, for a
// connection that leaves from, and the described rules, nil if it was only named. c is the
// credential of the connection, nil if it has none.
func (s *Server) describedPool(text []byte, c *access.Credential, from *pool) (*pool, *coordinator.Coordinator, error) {
	d, onlyName, err := parseDescription(text)
	if err != nil {
		return nil, nil, fmt.Errorf("the description of the pool cannot be read: %s", describeJSONError(err))
	}
	if d.Name != nil {
		if err := CheckPoolName(*d.Name); err != nil {
			return nil, nil, err
		}
	}
	if onlyName {
		p, err := s.pools.findByName(*d.Name, c, from)
		return p, nil, err
	}
	name := ""
	if d.Name != nil {
		name = *d.Name
	}
	return s.describe(name, d.Pool, c, from)
}

// describe is describedPool for a description. name may be empty.
func (s *Server) describe(name string, described coordinator.Pool, c *access.Credential, from *pool) (*pool, *coordinator.Coordinator, error) {
	if err := checkSize(&described); err != nil {
		return nil, nil, err
	}
	rules, err := coordinator.New(described)
	if field := (*fielderror.Error)(nil); errors.As(err, &field) {
		return nil, nil, fmt.Errorf("the described pool: %w", field.Err)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("the described pool: %w", err)
	}
	p, err := s.pools.get(name, rules, c, from)
	return p, rules, err
}

// parseDescription decodes the JSON of a pool request. onlyName says that it has nothing but
// a name.
func parseDescription(text []byte) (d description, onlyName bool, err error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&d); err != nil {
		return d, false, err
	}
	if decoder.More() {
		return d, false, fmt.Errorf("text behind the object")
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		return d, false, err
	}
	return d, len(fields) == 1 && d.Name != nil, nil
}

// describeJSONError returns what a peer needs to know of an error of package json.
func describeJSONError(err error) string {
	var mistyped *json.UnmarshalTypeError
	if errors.As(err, &mistyped) {
		if mistyped.Field == "" {
			return fmt.Sprintf("a JSON %s, and not an object", mistyped.Value)
		}
		return fmt.Sprintf("%s is a JSON %s, want %s", strings.TrimPrefix(mistyped.Field, "Pool."), mistyped.Value, jsonTypeName(mistyped.Type))
	}
	return strings.TrimPrefix(err.Error(), "json: ")
}

// jsonTypeName names the JSON that a field of a description takes.
func jsonTypeName(t reflect.Type) string {
	if reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
		return "a string"
	}
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a string"
	case reflect.Slice:
		return "a list"
	case reflect.Struct:
		return "an object"
	default:
		return "a whole number"
	}
}

// reply returns the pool as the peer is told it, with the rules of its connection.
func (p *pool) reply(rules *coordinator.Coordinator) api.Pool {
	config := rules.Pool()
	r := api.Pool{
		Name: p.name, Digest: p.digest, VLLM: config.FittingReleases(),
		Alignment: rules.Alignment(), HashLen: p.hashLen,
		TailBoundaries: rules.HasTailBoundaries(), Backend: "memory", Pool: config,
	}
	if p.remote != nil {
		r.Backend = p.remote.Name()
	}
	var prefixes []string
	for g := range rules.NumGroups() {
		group, ranks := rules.Group(g), rules.Ranks(g)
		for _, rank := range ranks {
			prefixes = append(prefixes, strings.TrimSuffix(rules.KeyPrefix(g, rank), "@"))
		}
		first := len(prefixes) - len(ranks)
		r.Groups = append(r.Groups, api.PoolGroup{Kind: group.Kind, BlockSize: group.BlockSize, Stride: rules.Stride(g), Ranks: len(ranks), KeyPrefix: prefixes[first]})
	}
	sum := sha256.Sum256([]byte(strings.Join(prefixes, "\n")))
	r.PrefixesSHA256 = hex.EncodeToString(sum[:])
	return r
}
