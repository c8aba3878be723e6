package httpapi

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/hitline/hitline/blockhash"
	"github.com/hitline/hitline/router"
	"github.com/hitline/hitline/router/fleet"
)

// BenchmarkHandler is a whole request without its connection: 512 blocks, held by 64 engines.
func BenchmarkHandler(b *testing.B) {
	var list []string
	hashes := chain(512)
	for _, hash := range hashes.All() {
		list = append(list, fmt.Sprint(blockhash.ShortHash(hash)))
	}
	body := `{"model":"llama","block_size":16,"seq_hashes":[` + strings.Join(list, ",") + `]}`
	s := newService(b, router.Config{Models: []router.Model{{ModelKey: llama, Fleet: fleet.Config{BlockSize: 16}}}})
	for i := range 64 {
		hold(b, s, llama, fmt.Sprint("vllm-", i), 0, "GPU", first(hashes, 256+i*4))
	}
	h := New(Config{Service: s})
	b.ReportAllocs()
	for b.Loop() {
		r := httptest.NewRequest(http.MethodPost, "/query_by_hash", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != http.StatusOK {
			b.Fatal(w.Body.String())
		}
	}
}
