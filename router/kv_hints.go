package router

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/router/events"
	"github.com/hitline/hitline/router/fleet"
)

// KVHints is the KvHintsEnvelope of vLLM and SGLang, by which a request tells its engine to fetch the blocks of its prompt
// from another one. They pass it on to KVCR, which reads the payload.
type KVHints struct {
	From            fleet.ID       `json:"-"` // the holder
	ProtocolVersion string         `json:"protocol_version"`
	MessageID       string         `json:"message_id"` // for logs: the holder, and the last block
	Actions         []KVHintAction `json:"actions"`
}

// KVHintAction is the action kv.fetch.
type KVHintAction struct {
	ID      string  `json:"action_id"`
	Type    string  `json:"action_type"`
	Version string  `json:"action_version"`
	Payload KVFetch `json:"payload"`
}

// KVFetch says which blocks are where.
type KVFetch struct {
	Endpoint string   `json:"source_control_endpoint"`
	Hashes   []uint64 `json:"block_hashes"` // of the prompt's leading blocks, as events have them, without a sign
}

// kvHints returns the hints of the answer. hashes are those of the prompt.
func (sc *scratch) kvHints(hashes coordinator.Hashes, a *Answer) *KVHints {
	for _, p := range a.Holders {
		endpoint, ok := sc.kvEndpoints[p.ID]
		if h := sc.fleet.Get(p.ID); !ok || h == nil || h.IsStale() { // it counts by LastKnown, or by predictions
			continue
		}
		tokens := heldTokens(&p)
		if tokens == 0 {
			continue
		}
		fetch := KVFetch{Endpoint: endpoint, Hashes: make([]uint64, tokens/int64(a.BlockSize))}
		for i := range fetch.Hashes {
			fetch.Hashes[i] = sc.model.shortHash(hashes.At(i))
		}
		return &KVHints{
			From: p.ID, ProtocolVersion: "0.1", MessageID: fmt.Sprintf("%s/%d/%016x", p.Engine, p.Rank, fetch.Hashes[len(fetch.Hashes)-1]),
			Actions: []KVHintAction{{ID: "fetch", Type: "kv.fetch", Version: "1.0", Payload: fetch}},
		}
	}
	return nil
}

// heldTokens returns how much of a prefix the holder has said to hold. With predicted blocks that is what one medium has
// alone: it may be less than what others have together.
func heldTokens(p *fleet.Prefix) (tokens int64) {
	isPredicted := func(m fleet.MediumPrefix) bool { return m.Medium == fleet.Predicted }
	if !slices.ContainsFunc(p.Media, isPredicted) {
		return p.Tokens
	}
	for _, m := range p.Media {
		if !isPredicted(m) {
			tokens = max(tokens, m.Tokens)
		}
	}
	return tokens
}

// shortHash returns the 64 bits of a hash that events of the model's engines have.
func (m *model) shortHash(hash []byte) uint64 {
	if m.cfg.Fleet.FirstBytes {
		return binary.BigEndian.Uint64(hash)
	}
	return binary.BigEndian.Uint64(hash[len(hash)-shortHashLen:])
}

// isEndpoint reports whether an engine can connect to text.
func isEndpoint(text string) bool {
	_, _, err := events.SplitEndpoint(text)
	return err == nil && events.IsName(text)
}
