package httpface

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/events"
	"github.com/hitline/hitline/fleet"
	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/holders"
	"github.com/hitline/hitline/lookup/internal/lookuptest"
	"github.com/hitline/hitline/netproto"
)

func TestMain(m *testing.M) { lookuptest.Main(m) }

var llama = holders.ModelKey{Name: "llama"}

// deadEndpoint is one that nothing listens at.
func deadEndpoint(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return "tcp://" + l.Addr().String()
}

// newPool returns a pool over memory that has the first stored hashes of chain.
func newPool(t testing.TB, stored int) *lookup.Service {
	t.Helper()
	p, err := lookup.NewService(lookup.ServiceConfig{
		Pool:   coordinator.Pool{HashBlockSize: 16, HashLen: 32, Groups: []coordinator.Group{{Kind: coordinator.FullAttention, BlockSize: 16}}},
		Memory: index.Config{MaxBytes: 64 << 20},
	})
	require.NoError(t, err)
	require.NoError(t, p.Store(t.Context(), lookup.GroupRank{}, first(chain(100), stored)))
	return p
}

// chain returns n hashes of 32 bytes.
func chain(n int) netproto.Hashes {
	return netproto.NewHashes(lookuptest.Chain("prompt", n, 32), 32)
}

func first(h netproto.Hashes, n int) netproto.Hashes {
	return netproto.NewHashes(h.Bytes()[:n*h.HashLen()], h.HashLen())
}

func newService(t testing.TB, cfg holders.Config) *holders.Service {
	t.Helper()
	s, err := holders.New(cfg)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

// hold makes a holder with blocks, as a source would.
func hold(t testing.TB, s *holders.Service, key holders.ModelKey, instance string, rank int, medium string, hashes netproto.Hashes) {
	t.Helper()
	f, _, err := s.Fleet(key)
	require.NoError(t, err)
	h := f.Get(fleet.ID{Instance: instance, Rank: rank})
	if h == nil {
		h, err = f.Add(fleet.ID{Instance: instance, Rank: rank})
		require.NoError(t, err)
	}
	b := events.Blocks{Group: events.NoGroup, Tier: events.Tier{Medium: medium}, Hashes: hashes, BlockSize: int64(f.BlockSize())}
	require.NoError(t, h.Store(&b, make([]bool, hashes.Len())))
	h.SetStale(false)
}

// hexOf returns a JSON list of hashes in hex.
func hexOf(h netproto.Hashes) string {
	var list []string
	for _, hash := range h.All() {
		list = append(list, fmt.Sprintf(`"%x"`, hash))
	}
	return "[" + strings.Join(list, ",") + "]"
}

// do sends a request to a handler and returns its status and body.
func do(t testing.TB, h http.Handler, method, path, body string, header ...string) (int, string) {
	t.Helper()
	r := httptest.NewRequestWithContext(context.Background(), method, "http://127.0.0.1"+path, strings.NewReader(body))
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	reply, err := io.ReadAll(w.Result().Body)
	require.NoError(t, err)
	return w.Code, string(reply)
}

// The answers have the shape that routers know.
func TestAnswers(t *testing.T) {
	s := newService(t, holders.Config{
		Models: []holders.Model{{ModelKey: llama, Service: newPool(t, 7), Hash: &holders.Hashing{}}}, Allow: []string{"tcp://127.0.0.1:*"},
	})
	h := New(Config{Service: s, Local: true})
	prompt := chain(20)
	hold(t, s, llama, "vllm-1", 0, "GPU", first(prompt, 8))
	hold(t, s, llama, "vllm-1", 1, "cpu", first(prompt, 16))
	hold(t, s, llama, "vllm-1", 1, "DP", first(prompt, 2))
	hold(t, s, llama, `b"2`, 0, "STORAGE", first(prompt, 1))
	for _, test := range []struct{ path, body, want string }{
		{
			"/query_by_hash", `{"model": "llama", "block_size": 16, "seq_hashes": ` + hexOf(prompt) + `}`,
			`{"default": {"vllm-1": {"longest_matched": 256, "GPU": 128, "CPU": 256, "DISK": 0, "DP": {"0": 128, "1": 256}},
			  "b\"2": {"longest_matched": 16, "GPU": 0, "CPU": 0, "DISK": 0, "DP": {"0": 16}, "STORAGE": 16}}}`,
		},
		{
			"/query_by_hash", `{"instance_id": "b\u00222", "loadable": true, "block_hash": ` + hexOf(prompt) + `}`,
			`{"default": {"b\"2": {"longest_matched": 16, "GPU": 0, "CPU": 0, "DISK": 0, "DP": {"0": 16}, "STORAGE": 16}}, "loadable_tokens": 112}`,
		},
		{"/query_by_hash", `{"seq_hashes": [1, -1, 18446744073709551615]}`, `{"default": {}}`},
		{"/query", `{"model": "llama", "lora_name": null, "token_ids": [1, 2, 3], "stream": {"of": [1.5e3, null]}}`, `{"default": {}}`},
		{"/predict", `{"instance_id": "p", "token_ids": [0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]}`, `{"status": "predicted", "instance_id": "p"}`},
		{
			"/query", `{"token_ids": [0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]}`,
			`{"default": {"p": {"longest_matched": 16, "GPU": 0, "CPU": 0, "DISK": 0, "DP": {"0": 16}, "predicted": 16}}}`,
		},
		{
			"/register", `{"endpoint": "` + deadEndpoint(t) + `", "type": "vLLM", "modelname": "llama", "instance_id": "vllm-2", "block_size": 16,
			  "dp_rank": 1, "lora_name": "ignored", "additionalsalt": ""}`,
			`{"status": "registered successfully", "instance_id": "vllm-2"}`,
		},
		{
			"/unregister", `{"type": "vLLM", "modelname": "llama", "tenant_id": "default", "instance_id": "vllm-2", "block_size": 16, "dp_rank": 1}`,
			`{"status": "unregistered successfully", "removed_instances": ["vllm-2|default|1"]}`,
		},
	} {
		status, reply := do(t, h, "POST", test.path, test.body)
		require.Equal(t, 200, status, reply)
		require.JSONEq(t, test.want, reply, test.body)
		require.True(t, json.Valid([]byte(reply)))
	}
}
