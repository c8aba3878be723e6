package fleet_test

import (
	"context"
	"fmt"
	"log"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/router/fleet"
)

// endpoint is an engine as an endpoint picker sees it.
type endpoint struct {
	instance string
	load     float64 // 0: idle, 1: full
}

// scorer scores the endpoints that a prompt may be sent to. It belongs to one goroutine at a time.
type scorer struct {
	fleet  *fleet.Fleet    // what the engines have
	store  *lookup.Service // what all of them can load
	result fleet.Result
	cached map[string]int64 // tokens in the GPU of each instance, of the prompt that is scored
}

// Weights of a scorer: what a token that is loaded saves of one that is computed, and what a full engine costs.
const (
	loadWeight = 0.6
	busyWeight = 0.5
)

// score appends a score for each endpoint, the higher the better: the part of the prompt that need not be computed
// there, where loading costs something, less what the engine has to do already. hashes are those of the prompt's
// whole blocks.
func (s *scorer) score(ctx context.Context, scores []float64, numTokens int64, hashes coordinator.Hashes, endpoints []endpoint) ([]float64, error) {
	if err := s.fleet.Lookup(&s.result, hashes); err != nil {
		return scores, err
	}
	clear(s.cached)
	for i := range s.result.Holders {
		p := &s.result.Holders[i]
		s.cached[p.Engine] = max(s.cached[p.Engine], inGPU(p)) // of its ranks the best
	}
	var loadable int64
	if hit, err := s.store.LookupPrompt(ctx, numTokens, hashes); err == nil { // without the store nothing is loadable
		loadable = hit.Tokens
	}
	for _, e := range endpoints {
		cached := s.cached[e.instance]
		saved := float64(cached) + loadWeight*float64(max(0, loadable-cached))
		scores = append(scores, saved/float64(numTokens)-busyWeight*e.load)
	}
	return scores, nil
}

// inGPU returns how much of the prompt is in the GPU, or will be: a prompt that was sent there just now counts, too.
func inGPU(p *fleet.Prefix) int64 {
	var most int64
	for _, m := range p.Media {
		if m.Medium == "GPU" || m.Medium == fleet.Predicted {
			most = max(most, m.Tokens)
		}
	}
	return most
}

// An endpoint picker scores three engines for a prompt of which the first has much but is busy, the second has a
// part, and the third nothing. Most of the prompt is in the store that they share.
func Example_scorer() {
	engines, err := fleet.New(fleet.Config{BlockSize: blockSize})
	if err != nil {
		log.Fatal(err)
	}
	store, err := lookup.NewService(lookup.ServiceConfig{Pool: coordinator.Pool{HashBlockSize: blockSize}})
	if err != nil {
		log.Fatal(err)
	}

	const numTokens = 800
	hashes := hashPrompt(make([]int64, numTokens))
	addHolder(engines, "busy", "GPU", leading(hashes, 45))
	addHolder(engines, "warm", "GPU", leading(hashes, 20))
	if err := store.Store(context.Background(), coordinator.GroupRank{}, leading(hashes, 40)); err != nil {
		log.Fatal(err)
	}

	s := scorer{fleet: engines, store: store, cached: map[string]int64{}}
	endpoints := []endpoint{{"busy", 0.9}, {"warm", 0.2}, {"idle", 0}}
	scores, err := s.score(context.Background(), nil, numTokens, hashes, endpoints)
	if err != nil {
		log.Fatal(err)
	}
	for i, e := range endpoints {
		fmt.Printf("%s %.2f\n", e.instance, scores[i])
	}
	// Output:
	// busy 0.45
	// warm 0.54
	// idle 0.48
}
