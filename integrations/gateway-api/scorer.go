package gatewayapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"time"

	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/interface/datalayer"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/interface/plugin"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/interface/scheduling"

	"github.com/hitline/hitline/router/client"
)

const (
	scorerTimeout    = 5 * time.Millisecond
	maxScorerTimeout = time.Second
)

// scorerParameters are those of the scorer in an EndpointPickerConfig.
type scorerParameters struct {
	URL       string `json:"url"` // hitline's router.listen
	TokenFile string `json:"tokenFile"`
	Timeout   string `json:"timeout"`
	Model     string `json:"model"` // as hitline calls it; empty: the only one of the tenant
	Tenant    string `json:"tenant"`
	// StoreWeight is what a token that the store can load counts, 0 to 1. With 0 the store is not asked.
	StoreWeight float64 `json:"storeWeight"`
	// LastKnown says that a stale rank counts for what it had last, and not only for what is predicted.
	LastKnown bool `json:"lastKnown"`
	// Endpoints are what hitline calls them, by ADDRESS:PORT. Others are called NAMESPACE/NAME.
	Endpoints map[string]source `json:"endpoints"`
	// Adapters are the paths of LoRA adapters by their names, which are models of requests. Other models have none.
	Adapters map[string]string `json:"adapters"`
}

// source is what hitline calls an endpoint.
type source struct {
	Engine string `json:"engine"`
	Rank   *int   `json:"rank"` // data-parallel; nil: the endpoint has all ranks of the engine
}

// scorer scores an endpoint by how much of the prompt it need not compute. Safe for concurrent use.
type scorer struct {
	name       plugin.TypedName
	parameters scorerParameters
	client     *client.Client
	timeout    time.Duration
	failures   failures
}

var (
	_ scheduling.Scorer     = (*scorer)(nil)
	_ plugin.ConsumerPlugin = (*scorer)(nil)
)

func newScorer(name string, parameters json.RawMessage, _ plugin.Handle) (plugin.Plugin, error) {
	s := &scorer{name: plugin.TypedName{Type: ScorerType, Name: name}}
	p := &s.parameters
	if err := decode(parameters, p); err != nil {
		return nil, err
	}
	if err := p.check(); err != nil {
		return nil, err
	}
	var err error
	if s.timeout, err = parseTimeout(p.Timeout, scorerTimeout, maxScorerTimeout); err != nil {
		return nil, err
	}
	if s.client, err = client.New(p.URL, client.WithTokenFile(p.TokenFile)); err != nil {
		return nil, fmt.Errorf("url: %w", err)
	}
	return s, nil
}

// check returns an error for what cannot be. It writes the addresses of endpoints as the picker does.
func (p *scorerParameters) check() error {
	if p.StoreWeight < 0 || p.StoreWeight > 1 {
		return fmt.Errorf("storeWeight is %v, must be 0 to 1", p.StoreWeight)
	}
	endpoints := make(map[string]source, len(p.Endpoints))
	for address, source := range p.Endpoints {
		parsed, err := netip.ParseAddrPort(address)
		switch {
		case err != nil:
			return fmt.Errorf("endpoints: %q must be ADDRESS:PORT, without names", address)
		case source.Engine == "":
			return fmt.Errorf("endpoints: %s has no engine", address)
		case source.Rank != nil && *source.Rank < 0:
			return fmt.Errorf("endpoints: %s has rank %d, must be at least 0", address, *source.Rank)
		}
		endpoints[parsed.String()] = source
	}
	p.Endpoints = endpoints
	return nil
}

// TypedName returns the type and the name of the plug-in.
func (s *scorer) TypedName() plugin.TypedName { return s.name }

// Category says that the scorer prefers what an endpoint has.
func (s *scorer) Category() scheduling.ScorerCategory { return scheduling.Affinity }

// Consumes makes the picker run a producer of token ids first.
func (s *scorer) Consumes() map[string]any {
	return map[string]any{tokensKey: (*scheduling.TokenizedPrompt)(nil)}
}

// Score returns the part of the prompt that each endpoint has, and of what the store can load beyond that the
// configured part. Without token ids, and without an answer in time, there are no scores.
func (s *scorer) Score(ctx context.Context, _ *scheduling.CycleState, request *scheduling.LLMRequest,
	endpoints []scheduling.Endpoint,
) map[scheduling.Endpoint]float64 {
	if request.TokenizedPrompt == nil || len(request.TokenizedPrompt.TokenIDs) == 0 {
		return nil
	}
	answer, err := s.ask(ctx, request)
	if err != nil {
		s.failures.report(ctx, s.name, err)
		return nil
	}
	scores := make(map[scheduling.Endpoint]float64, len(endpoints))
	for _, endpoint := range endpoints {
		held, isStale := answer.Prefix(s.parameters.source(endpoint.GetMetadata()))
		if isStale && held == 0 && !s.parameters.LastKnown {
			scores[endpoint] = 0
			continue
		}
		saved := float64(held) + s.parameters.StoreWeight*float64(max(answer.LoadableTokens-held, 0))
		scores[endpoint] = min(saved/float64(len(request.TokenizedPrompt.TokenIDs)), 1)
	}
	return scores
}

// source returns what hitline calls an endpoint.
func (p *scorerParameters) source(endpoint *datalayer.EndpointMetadata) (engine string, rank int) {
	source, ok := p.Endpoints[net.JoinHostPort(endpoint.Address, endpoint.Port)]
	switch {
	case !ok:
		return endpoint.NamespacedName.String(), client.AllRanks
	case source.Rank == nil:
		return source.Engine, client.AllRanks
	}
	return source.Engine, *source.Rank
}

// ask asks hitline about the prompt of a request. Tokens tell images not apart, so a prompt with one counts up to it.
func (s *scorer) ask(ctx context.Context, request *scheduling.LLMRequest) (*client.Answer, error) {
	p := &s.parameters
	q := client.Query{LastKnown: p.LastKnown, Loadable: p.StoreWeight > 0}
	q.Model, q.Tenant = p.Model, p.Tenant
	for _, id := range request.TokenizedPrompt.TokenIDs {
		q.Tokens = append(q.Tokens, int64(id))
	}
	if path, ok := p.Adapters[request.TargetModel]; ok {
		q.LoRAName, q.LoRAPath = request.TargetModel, path
	}
	if request.Body != nil {
		q.CacheSalt = request.Body.CacheSalt()
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	return s.client.Query(ctx, &q)
}
