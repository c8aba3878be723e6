package holders

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/hitline/hitline/blockhash"
	"github.com/hitline/hitline/events"
	"github.com/hitline/hitline/fleet"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/netproto"
)

// Errors of a Service. Those of sources are those of package events and of package fleet.
var (
	ErrNoModel    = errors.New("holders: there is no such model")
	ErrNoHashing  = errors.New("holders: how the model's tokens are hashed is not configured; ask by hashes")
	ErrNoPool     = errors.New("holders: the model has no pool whose store could be asked")
	ErrWholeHash  = errors.New("holders: the store's keys need whole digests, not 64 bits of them")
	ErrTooMany    = errors.New("holders: too many models")
	ErrOtherBlock = errors.New("holders: another block size than the model's")
)

// ModelKey names a model: its blocks are compared with those of no other.
type ModelKey struct{ Tenant, Name string } // Tenant "" is api.DefaultTenant

// Model configures a model.
type Model struct {
	ModelKey
	Fleet fleet.Config // BlockSize 0: that of the first source or query
	// Service is that of the pool whose store the model's engines load from, nil if there is none.
	Service *lookup.Service
	Pool    string // the name of that pool, "" for the server's own
	// Hash says how token ids are hashed, nil if only hashes are asked about.
	Hash *Hashing
}

// Hashing is how an engine hashes token ids.
type Hashing struct {
	SGLang    bool // otherwise vLLM; the other fields are vLLM's
	Release   string
	Algorithm blockhash.Algorithm
	Seed      *string // PYTHONHASHSEED
}

// Config configures a Service.
type Config struct {
	Models []Model
	// MaxModels bounds the models, those included that sources name and Models lacks, which get the
	// limits of Fleet; 0: DefaultMaxModels.
	MaxModels int
	Fleet     fleet.Config
	Allow     []string // endpoints that Register may connect to, see events.ManagerConfig
	Logger    *slog.Logger
}

// DefaultMaxModels is how many models there are at most.
const DefaultMaxModels = 16

// Source is a publisher of KV events, and the holder that it fills.
type Source struct {
	events.Config
	ModelKey
	fleet.ID
	BlockSize int // 0: the model's
}

// SourceStatus is the state of a source.
type SourceStatus struct {
	events.Status
	Model      string `json:"model"`
	Tenant     string `json:"tenant"`
	Instance   string `json:"instance"`
	Rank       int    `json:"rank"`
	Registered bool   `json:"registered"`
}

// Query asks who holds most of a prompt: by Hashes, or by Tokens if there are none.
type Query struct {
	ModelKey
	Instance string // "": all
	Hashes   netproto.Hashes
	Tokens   []int64
	Keys     *blockhash.ExtraKeys // of Tokens: adapter, salt
	// Loadable asks the store, too. NumTokens is the length of the prompt for it; 0: len(Tokens), or that of
	// the whole blocks.
	Loadable  bool
	NumTokens int64
}

// Answer is the answer to a Query. It is reused by the next one.
type Answer struct {
	BlockSize int
	fleet.Result
	LoadableTokens int64 // -1 if that was not asked
}

// Service has the models, their holders and the sources that fill them. Safe for concurrent use.
type Service struct {
	cfg Config
}

// New returns a service without sources.
func New(cfg Config) (*Service, error) { return &Service{cfg: cfg}, errors.New("to be written") }

// Add follows a source of the configuration.
func (s *Service) Add(src Source) error { return nil }

// Register is Add for a source that a client names: events.ErrNotAllowed refuses endpoints that are not allowed.
func (s *Service) Register(src Source) error { return nil }

// Unregister ends a source that was registered, and drops its holder.
func (s *Service) Unregister(key ModelKey, id fleet.ID) error { return nil }

// Predict says that an instance will soon have the blocks of a prompt. A holder that no source fills is made, and
// dropped when its predictions have expired.
func (s *Service) Predict(key ModelKey, id fleet.ID, q *Query) error { return nil }

// Query answers a. It fails with ErrNoModel and the other errors of this package. ctx bounds what the store is
// waited for.
func (s *Service) Query(ctx context.Context, q *Query, a *Answer) error { return nil }

// Fleet returns the fleet of a model and the pool that its store is asked by, for callers that have their hashes in
// pieces; ErrNoModel if there is none.
func (s *Service) Fleet(key ModelKey) (*fleet.Fleet, *Model, error) {
	return nil, nil, fmt.Errorf("%w: %q", ErrNoModel, key.Name)
}

// Status returns the state of all sources by name. The caller owns the result.
func (s *Service) Status() []SourceStatus { return nil }

// Close ends all sources and waits for them.
func (s *Service) Close() {}

var _ = api.DefaultTenant
