package router

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/hitline/hitline/internal/duration"
	"github.com/hitline/hitline/internal/fielderror"
	"github.com/hitline/hitline/router/events"
	"github.com/hitline/hitline/router/fleet"
)

// Types of engines.
const (
	TypeVLLM   = "vllm"
	TypeSGLang = "sglang"
)

// Bounds of Source.Timeout. The minimum leaves a heartbeat, a third of it, time to be answered.
const (
	minTimeout = Duration(100 * time.Millisecond)
	maxTimeout = Duration(time.Hour)
)

// maxRanks bounds Source.Ranks.
const maxRanks = 256

// Source is a publisher of KV events and the holder, a rank of an engine, whose blocks they tell. The fields have
// the same names in the configuration and in JSON.
type Source struct {
	Name     string `json:"name,omitempty" yaml:"name"`                       // "": its endpoint
	Endpoint string `json:"endpoint" yaml:"endpoint"`                         // tcp://host:port or ipc://path, as ZeroMQ writes them
	Bind     bool   `json:"bind,omitempty" yaml:"bind"`                       // Endpoint is bound, and the engine connects to it
	Replay   string `json:"replay_endpoint,omitempty" yaml:"replay_endpoint"` // "": it has no replay socket
	Topic    string `json:"topic,omitempty" yaml:"topic"`                     // prefix of the topics that are subscribed to
	Type     string `json:"type,omitempty" yaml:"type"`                       // TypeVLLM or TypeSGLang; "": the model's, or vLLM's for a new model

	Model  string `json:"model" yaml:"model"`
	Tenant string `json:"tenant_id,omitempty" yaml:"tenant_id"` // "": DefaultTenant
	Engine string `json:"instance_id" yaml:"instance_id"`
	Rank   int    `json:"dp_rank" yaml:"dp_rank"`
	// Ranks, if more than 1, is the number of ranks: the source stands for one source each, from Rank on, at ports that
	// follow each other.
	Ranks int `json:"ranks,omitempty" yaml:"ranks"`
	// BlockSize is the engine's hash block size in tokens; 0: the model's.
	BlockSize   int      `json:"block_size,omitempty" yaml:"block_size"`
	KVEndpoint  string   `json:"kv_endpoint,omitempty" yaml:"kv_endpoint"`   // where others fetch its blocks, for KVHints; "": nowhere
	ExactCopies bool     `json:"exact_copies,omitempty" yaml:"exact_copies"` // see events.Config
	OneRemoval  bool     `json:"one_removal,omitempty" yaml:"one_removal"`   // see events.Config
	Timeout     Duration `json:"timeout,omitzero" yaml:"timeout"`            // see events.Config
}

// ModelKey returns the key of the model.
func (src *Source) ModelKey() ModelKey {
	return ModelKey{Tenant: src.Tenant, Name: src.Model}.withDefaults()
}

// ID returns the ID of the holder.
func (src *Source) ID() fleet.ID { return fleet.ID{Engine: src.Engine, Rank: src.Rank} }

// SetDefaults sets what has a default of its own and is not set.
func (src *Source) SetDefaults() {
	src.Name = cmp.Or(src.Name, src.Endpoint)
	src.Type = strings.ToLower(src.Type)
	src.Tenant = cmp.Or(src.Tenant, DefaultTenant)
	src.Timeout = cmp.Or(src.Timeout, Duration(events.DefaultTimeout))
}

// Validate returns an ErrField if anything is wrong with the source once its defaults are set.
func (src Source) Validate() error {
	src.SetDefaults()
	if err := cmp.Or(src.ModelKey().check("model"), checkID(src.ID())); err != nil {
		return err
	}
	switch {
	case src.Type != "" && src.Type != TypeVLLM && src.Type != TypeSGLang:
		return badField(ErrField, "type", "%.40q is no type of engine; known are %s and %s", src.Type, TypeVLLM, TypeSGLang)
	case src.BlockSize < 0 || src.BlockSize > math.MaxInt32:
		return badField(ErrField, "block_size", "%d is no number of tokens; give 1 to %d, or 0 for the model's", src.BlockSize, math.MaxInt32)
	case src.Ranks < 0 || src.Ranks > maxRanks || src.Ranks > fleet.MaxRank+1-src.Rank:
		return badField(ErrField, "ranks", "%d is no number of ranks; give 1 to %d, of which the last is at most %d", src.Ranks, maxRanks, fleet.MaxRank)
	case src.KVEndpoint != "" && !isEndpoint(src.KVEndpoint):
		return badField(ErrField, "kv_endpoint", "%.40q is no endpoint; give tcp://host:port, of at most %d bytes", src.KVEndpoint, events.MaxName)
	case src.Timeout < minTimeout || src.Timeout > maxTimeout:
		return badField(ErrField, "timeout", "%v is not %v to %v", src.Timeout, minTimeout, maxTimeout)
	}
	ranks, err := src.EachRank()
	if err != nil {
		return err
	}
	var e *fielderror.Error
	if last := ranks[len(ranks)-1]; errors.As(last.config().Validate(), &e) { // it has the longest name
		return fmt.Errorf("%w: %w", ErrField, e)
	}
	return nil
}

// EachRank returns the sources that src, which is valid, stands for. It fails with ErrField if they need ports that there are
// not.
func (src Source) EachRank() ([]Source, error) {
	if src.Ranks <= 1 {
		src.Ranks = 0
		return []Source{src}, nil
	}
	list := make([]Source, src.Ranks)
	for i := range list {
		one, endpoint, replay := src, src.Endpoint, src.Replay
		var err error
		if one.Endpoint, err = atPort(endpoint, i, replay, src.Ranks); err != nil {
			return nil, badField(ErrField, "endpoint", "%w", err)
		}
		if one.Replay, err = atPort(replay, i, endpoint, src.Ranks); err != nil {
			return nil, badField(ErrField, "replay_endpoint", "%w", err)
		}
		if one.KVEndpoint, err = atPort(src.KVEndpoint, i, endpoint, src.Ranks); err != nil {
			return nil, badField(ErrField, "kv_endpoint", "%w", err)
		}
		one.Rank, one.Ranks = src.Rank+i, 0
		if one.Name += fmt.Sprint("-", one.Rank); src.Name == endpoint {
			one.Name = one.Endpoint
		}
		list[i] = one
	}
	return list, nil
}

// atPort returns endpoint with its port plus i. It fails if the n ports from endpoint's on are among the n from another's on.
func atPort(endpoint string, i int, another string, n int) (string, error) {
	if endpoint == "" {
		return "", nil
	}
	host, port, ok := cutPort(endpoint)
	anotherHost, anotherPort, _ := cutPort(another)
	switch {
	case !ok || port+n-1 > math.MaxUint16:
		return "", fmt.Errorf("%q has no port for each of %d ranks; give tcp://host:port", endpoint, n)
	case host == anotherHost && port < anotherPort+n && anotherPort < port+n:
		return "", fmt.Errorf("%q and %q have the same ports with %d ranks; choose them further apart, in the engine, too", endpoint, another, n)
	}
	return fmt.Sprint(host, ":", port+i), nil
}

// cutPort cuts the port from an endpoint. ok is false if it has none.
func cutPort(endpoint string) (host string, port int, ok bool) {
	at := strings.LastIndexByte(endpoint, ':')
	port, err := strconv.Atoi(endpoint[at+1:])
	return endpoint[:max(at, 0)], port, err == nil && strings.HasPrefix(endpoint, "tcp://")
}

// config returns the configuration of the Follower, without limits.
func (src *Source) config() events.Config {
	return events.Config{
		Name: src.Name, Endpoint: src.Endpoint, Bind: src.Bind, Replay: src.Replay, Topic: src.Topic,
		ExactCopies: src.ExactCopies, OneRemoval: src.OneRemoval, Rank: &src.Rank, Timeout: time.Duration(src.Timeout),
	}
}

// badField returns a class of errors, such as ErrField, about a field of a source or of a request.
func badField(class error, field, format string, args ...any) error {
	return fmt.Errorf("%w: %w", class, fielderror.New([]string{field}, format, args...))
}

// checkName refuses what cannot name a model, a tenant or an engine.
func checkName(field, name string) error {
	switch {
	case name == "":
		return badField(ErrField, field, "has no %s; give 1 to %d bytes of printable characters", field, events.MaxName)
	case !events.IsName(name):
		return badField(ErrField, field, "%.40q is no name; give 1 to %d bytes of printable characters", name, events.MaxName)
	}
	return nil
}

func checkID(id fleet.ID) error {
	if id.Rank < 0 || id.Rank > fleet.MaxRank {
		return badField(ErrField, "dp_rank", "%d is no rank; give 0 to %d", id.Rank, fleet.MaxRank)
	}
	return checkName("instance_id", id.Engine)
}

// SourceStatus is the state of a source. It has the name and the endpoint of the Source, too.
type SourceStatus struct {
	events.Status
	Model      string `json:"model"`
	Tenant     string `json:"tenant_id"`
	Engine     string `json:"instance_id"`
	Rank       int    `json:"dp_rank"`
	Registered bool   `json:"registered"` // otherwise it is one of the configuration
	// Hashes says whether the engine hashes tokens as the model's Hash does, and HashesReason what to change if not.
	Hashes       Agreement `json:"hashes"`
	HashesReason string    `json:"hashes_reason,omitempty"`
}

// Duration is a time.Duration whose text is Go's, as in the configuration and in JSON: 100ms, 10s, 1m30s, 2h. A bare number
// is of seconds.
type Duration time.Duration

// UnmarshalText reads a duration that is not negative.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := duration.Parse(string(text))
	if err != nil || parsed < 0 {
		return fmt.Errorf("%q is not a duration; write seconds, such as 10, or 100ms, 1m30s or 2h", text)
	}
	*d = Duration(parsed)
	return nil
}

// UnmarshalJSON reads a text, or a number of seconds. null is 0.
func (d *Duration) UnmarshalJSON(value []byte) error {
	if string(value) == "null" {
		*d = 0
		return nil
	}
	return d.UnmarshalText(bytes.Trim(value, `"`))
}

// MarshalText writes what UnmarshalText reads.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// String is that of a time.Duration.
func (d Duration) String() string { return time.Duration(d).String() }
