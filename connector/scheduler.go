package connector

import (
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/netproto"
)

// Poller makes lookups without waiting. The AsyncClient of lookup/client is one; LookupFunc
// makes one of any lookup.
type Poller interface {
	// Poll returns the answer to a lookup, once, when ready is true. The first Poll of an id
	// begins the lookup, and later ones have the same arguments. hashes are borrowed until it
	// returns. An error is ready, with a hit of 0.
	Poll(requestID string, numTokens int64, hashes netproto.Hashes) (hit coordinator.Hit, ready bool, err error)
	// Discard removes an id that is not ready. It does nothing if there is none.
	Discard(requestID string)
}

// LookupFunc is a Poller whose lookups are answered at once: of a lookup.Service, a
// client.Client, or Coordinator.LookupBlocks over a store of one's own. A function that waits
// needs a deadline, since a scheduler waits with it.
type LookupFunc func(numTokens int64, hashes netproto.Hashes) (coordinator.Hit, error)

// Poll calls f.
func (f LookupFunc) Poll(_ string, numTokens int64, hashes netproto.Hashes) (coordinator.Hit, bool, error) {
	hit, err := f(numTokens, hashes)
	return hit, true, err
}

// Discard does nothing: no lookup is under way after Poll.
func (f LookupFunc) Discard(string) {}

// Scheduler decides what is looked up for a request, and how much is loaded. (Reference:
// MooncakeStoreScheduler.)
type Scheduler struct {
	rules        *coordinator.Coordinator
	poller       Poller
	capacityOnly bool
}

// NewScheduler returns the scheduler of an engine with these rules. The caller keeps poller,
// and closes it if it must be closed.
func NewScheduler(rules *coordinator.Coordinator, poller Poller) *Scheduler {
	return &Scheduler{rules: rules, poller: poller, capacityOnly: rules.Pool().CapacityOnly}
}

// Match is what a store has for a request.
type Match struct {
	// Hit is the answer to the lookup. Up to 0.26.0 a hit of all tokens of the request is
	// lowered to the scheduler block before the last token; later the lookup does that.
	Hit coordinator.Hit
	// Tokens is how many tokens to load: those of the hit behind the computed ones, or 0.
	Tokens int64
}

// Match looks up a request of numTokens tokens, of which the engine has computed the first
// ones locally. hashes has one hash for each whole hash block of the request, and is borrowed.
// If ready is false the lookup is under way: call Match again, with the same numTokens and
// hashes, in the next scheduling step.
//
// Up to 0.26.0 it looks up whole scheduler blocks, later the number of tokens as it is. It
// looks up nothing if that is less than the alignment, or if the pool is capacity-only.
//
// An error is the Poller's, and ready. The engine should compute such a request, as if nothing
// were stored. (Reference: get_num_new_matched_tokens.)
func (s *Scheduler) Match(requestID string, numTokens, computed int64, hashes netproto.Hashes) (m Match, ready bool, err error) {
	align, whole := s.rules.Alignment(), s.rules.NeedsAligned()
	tokens := numTokens
	if whole {
		tokens -= tokens % align
	}
	if tokens < align || s.capacityOnly {
		return Match{}, true, nil
	}
	hit, ready, err := s.poller.Poll(requestID, tokens, hashes)
	if !ready || err != nil {
		return Match{}, ready, err
	}
	if whole && hit.Tokens == numTokens {
		hit.Tokens = (numTokens - 1) / align * align
	}
	return Match{Hit: hit, Tokens: max(0, hit.Tokens-computed)}, true, nil
}

// Discard ends the lookup of a request that goes before Match was ready. It does nothing if
// none is under way.
func (s *Scheduler) Discard(requestID string) { s.poller.Discard(requestID) }
