package httpapi

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/blockhash"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/router"
	"github.com/hitline/hitline/router/fleet"
)

// BenchmarkQuery is a whole request without its connection: 8,192 blocks, held by 64 holders or by none.
func BenchmarkQuery(b *testing.B) {
	const numTokens = 1 << 17
	body := manyTokens(numTokens)
	var decoded request
	decoded.limits = &testLimits
	require.NoError(b, decoded.read(bytes.NewReader(body), fieldsOfQuery))
	v, err := blockhash.NewVLLM(blockhash.VLLMConfig{BlockSize: 16})
	require.NoError(b, err)
	digests, err := v.AppendHashes(nil, decoded.tokens, nil)
	require.NoError(b, err)
	hashes := coordinator.NewHashes(digests, 32)
	byHash := []byte(`{"model":"llama","seq_hashes":[`)
	for i, hash := range hashes.All() {
		if i > 0 {
			byHash = append(byHash, ',')
		}
		byHash = fmt.Append(byHash, blockhash.ShortHash(hash))
	}
	byHash = append(byHash, `]}`...)
	for _, numHolders := range []int{0, 64} {
		s := newService(b, router.Config{Models: []router.Model{{ModelKey: llama, Hash: &router.Hashing{}, Fleet: fleet.Config{BlockSize: 16}}}})
		for i := range numHolders {
			hold(b, s, llama, fmt.Sprint("vllm-", i), 0, "GPU", hashes)
		}
		h := New(Config{Service: s})
		for path, body := range map[string][]byte{"/query": body, "/query_by_hash": byHash} {
			b.Run(fmt.Sprintf("path=%s/blocks=8192/holders=%d", path[1:], numHolders), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					r := httptest.NewRequest(http.MethodPost, path, bytes.NewReader(body))
					r.Header.Set("Content-Type", "application/json")
					w := httptest.NewRecorder()
					h.ServeHTTP(w, r)
					if w.Code != http.StatusOK {
						b.Fatal(w.Body.String())
					}
				}
			})
		}
	}
}
