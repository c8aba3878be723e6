package httpapi

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/conformance"
	"github.com/hitline/hitline/router"
	"github.com/hitline/hitline/router/fleet"
)

// hintsCase is a holder and the envelope that engines read as: fetch its blocks.
type hintsCase struct {
	Engine   string   `json:"engine"`
	Rank     int      `json:"rank"`
	Endpoint string   `json:"endpoint"`
	Hashes   []uint64 `json:"hashes"`
	Envelope string   `json:"envelope"`
}

// TestConformance compares the hints of an answer, byte by byte, with those that engines write and accept, and that KVCR reads.
func TestConformance(t *testing.T) {
	conformance.RunKind(t, "hints", func(c *hintsCase) conformance.Verdict {
		s := newService(t, router.Config{Models: []router.Model{{ModelKey: llama, Fleet: fleet.Config{BlockSize: 16}}}})
		require.NoError(t, s.Add(router.Source{Endpoint: "tcp://127.0.0.1:1", Model: "llama", Engine: c.Engine, Rank: c.Rank, KVEndpoint: c.Endpoint}))
		var blob []byte
		for _, hash := range c.Hashes {
			blob = binary.BigEndian.AppendUint64(blob, hash)
		}
		hold(t, s, llama, c.Engine, c.Rank, "CPU", coordinator.NewHashes(blob, 8))
		list, err := json.Marshal(append(c.Hashes, 300)) // which no case has
		require.NoError(t, err)
		_, body := do(t, New(Config{Service: s, Local: true}), "POST", "/query", fmt.Sprintf(`{"seq_hashes": %s, "kv_hints": true}`, list))
		var answer struct {
			Hints map[string]json.RawMessage `json:"kv_hints"`
		}
		require.NoError(t, json.Unmarshal([]byte(body), &answer))
		if got := string(answer.Hints[c.Engine]); got != c.Envelope {
			return conformance.Differs("%s, want %s", got, c.Envelope)
		}
		return conformance.Verdict{}
	})
}
