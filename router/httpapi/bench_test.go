package httpapi

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/hitline/hitline/router"
	"github.com/hitline/hitline/router/fleet"
)

func BenchmarkHandler(b *testing.B) {
	const numBlocks, numHolders = 512, 64
	hashes := chain(numBlocks)
	body := []byte(`{"model":"llama","block_size":16,"seq_hashes":[`)
	for i, hash := range hashes.All() {
		if i > 0 {
			body = append(body, ',')
		}
		var v uint64
		for _, x := range hash[len(hash)-8:] {
			v = v<<8 | uint64(x)
		}
		body = fmt.Append(body, v)
	}
	body = append(body, `]}`...)
	s := newService(b, router.Config{Models: []router.Model{{ModelKey: llama, Fleet: fleet.Config{BlockSize: 16}}}})
	for i := range numHolders {
		hold(b, s, llama, fmt.Sprint("vllm-", i), 0, "GPU", first(hashes, 256+i*4))
	}
	h := New(Config{Service: s})
	b.ReportAllocs()
	for b.Loop() {
		r := httptest.NewRequest(http.MethodPost, "/query_by_hash", bytes.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != http.StatusOK {
			b.Fatal(w.Body.String())
		}
	}
}
