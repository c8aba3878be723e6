package metrics

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hitline/hitline/backend"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/client"
	"github.com/hitline/hitline/lookup/server"
	"github.com/hitline/hitline/netproto"
	"github.com/hitline/hitline/simd"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, lookuptest.EngineLeaks...)
}

const testTimeout = 20 * time.Second

var pool = coordinator.Pool{HashBlockSize: 16}

// The names are an interface: dashboards and alerts are written against them.
var (
	namesOfService = []string{
		"build_info gauge", "evicted_total counter", "looked_keys_total counter", "looks_dropped_total counter", "lookups_total counter", "pool_info gauge",
		"prompt_lookups_not_counted_total counter", "prompt_tokens_total counter", "prompts_total counter", "stored_total counter",
	}
	namesOfIndex = []string{
		"index_bytes gauge", "index_entries gauge", "index_max_bytes gauge", "index_max_entries gauge", "stores_refused_total counter",
	}
	namesOfBackend = []string{
		"backend_errors_total counter", "backend_rejected_total counter", "backend_rounds_total counter", "backend_keys_total counter", "renewed_keys_total counter", "renewals_dropped_total counter", "remembered_lookups_total counter", "backend_state gauge", "backend_timeouts_total counter",
		"backend_call_duration_seconds histogram",
	}
	namesOfServer = []string{
		"pools gauge", "memory_bytes gauge", "max_memory_bytes gauge", "memory_refused_total counter",
		"accept_errors_total counter", "auth_failures_total counter", "requests_not_allowed_total counter", "connections gauge", "connections_closed_total counter",
		"lookup_duration_seconds histogram", "lookup_hashes histogram", "max_connections gauge",
		"ready gauge", "replies_after_fin_total counter", "requests_busy_total counter", "requests_refused_total counter", "requests_total counter", "start_time_seconds gauge",
	}
)

// scrape returns the values of a collector by name and labels, and its names with
// their types, as Prometheus reads them.
func scrape(t *testing.T, c prometheus.Collector) (values map[string]float64, names []string) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry() // checks that Describe told of all
	require.NoError(t, registry.Register(c))
	w := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}).
		ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	require.Equal(t, 200, w.Code, w.Body)
	values = map[string]float64{}
	for lines := bufio.NewScanner(w.Body); lines.Scan(); {
		line := lines.Text()
		if name, ok := strings.CutPrefix(line, "# TYPE hitline_"); ok {
			names = append(names, name)
		}
		if strings.HasPrefix(line, "#") {
			continue
		}
		cut := strings.LastIndexByte(line, ' ')
		v, err := strconv.ParseFloat(line[cut+1:], 64)
		require.NoError(t, err, line)
		name := strings.ReplaceAll(strings.TrimPrefix(line[:cut], "hitline_"), `{pool=""}`, "") // as if it were missing
		values[name] = v
	}
	return values, names
}

func sorted(lists ...[]string) []string {
	all := slices.Concat(lists...)
	slices.Sort(all)
	return all
}

func start(t *testing.T, cfg lookup.ServiceConfig) (*server.Server, *client.Client) {
	t.Helper()
	cfg.Pool = pool
	service, err := lookup.NewService(cfg)
	require.NoError(t, err)
	srv, err := server.New(service, server.Config{
		Listeners: []server.Listener{{Address: "tcp://127.0.0.1:0"}}, Loops: 2, Limits: server.Limits{MaxConnections: 20},
	})
	require.NoError(t, err)
	require.NoError(t, srv.Start(t.Context()))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
		defer cancel()
		_ = srv.Shutdown(ctx)
	})
	c, err := client.Dial(t.Context(), srv.Addrs()[0], client.WithTimeout(testTimeout))
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return srv, c
}

// prompt returns n different hashes of 32 bytes.
func prompt(n int) []byte {
	var b []byte
	for i := range n {
		b = fmt.Appendf(b, "%032d", i)
	}
	return b
}

func TestServer(t *testing.T) {
	srv, c := start(t, lookup.ServiceConfig{Memory: index.Config{MaxBytes: 64 << 20, MaxEntries: 1000}, Version: "v1"})
	collected := NewServerCollector(srv)
	ctx := t.Context()
	keys := prompt(100)
	require.NoError(t, c.Store(ctx, coordinator.GroupRank{}, coordinator.NewHashes(keys[:60*32], 32)))
	require.NoError(t, c.Evict(ctx, coordinator.GroupRank{}, coordinator.NewHashes(keys[59*32:60*32], 32)))
	for n, want := range map[int]int64{0: 0, 16: 256, 17: 272, 100: 59 * 16} {
		hit, err := c.Lookup(ctx, int64(16*max(n, 1)), coordinator.NewHashes(keys[:n*32], 32))
		require.NoError(t, err)
		require.Equal(t, want, hit.Tokens)
	}
	_, err := c.Lookup(ctx, 17, coordinator.NewHashes(keys[:32], 32))
	require.ErrorIs(t, err, client.ErrRefused)
	scanner, err := net.Dial("tcp", strings.TrimPrefix(srv.Addrs()[0], "tcp://"))
	require.NoError(t, err)
	defer scanner.Close()
	_, err = scanner.Write([]byte("GET /"))
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		st := srv.Stat()
		return st.Connections == 1 && st.Closed["bad_first_byte"] == 1
	}, testTimeout, time.Millisecond)

	got, names := scrape(t, collected)
	require.Equal(t, sorted(namesOfService, namesOfIndex, namesOfServer), names)
	for name, want := range map[string]float64{
		"start_time_seconds": float64(srv.Instance().StartTime.Unix()),
		`build_info{backend="memory",instance_id="` + srv.Instance().ID + `",kernel="` + simd.Kernel() + `",version="v1"}`: 1,

		"lookups_total": 4, `prompt_tokens_total{place="new",pool=""}`: 0,
		"stored_total": 60, "evicted_total": 1, "stores_refused_total": 0,
		"index_entries": 59, "index_max_entries": 1000, "index_max_bytes": 64 << 20,
		"ready": 1, "connections": 1, "max_connections": 20, "requests_refused_total": 1,
		"max_memory_bytes": 128 << 20, "memory_refused_total": 0, "requests_busy_total": 0,
		"accept_errors_total":                               0,
		`connections_closed_total{reason="bad_first_byte"}`: 1, `connections_closed_total{reason="slow_reader"}`: 0,
		`requests_total{request="lookup"}`: 5, `requests_total{request="store"}`: 1, `requests_total{request="evict"}`: 1, `requests_total{request="unknown"}`: 0,
		"lookup_duration_seconds_count": 4, `lookup_duration_seconds_bucket{le="+Inf"}`: 4,
		"lookup_hashes_count": 4, "lookup_hashes_sum": 133,
		`lookup_hashes_bucket{le="16"}`: 2, `lookup_hashes_bucket{le="64"}`: 3, `lookup_hashes_bucket{le="256"}`: 4, `lookup_hashes_bucket{le="+Inf"}`: 4,
	} {
		require.Contains(t, got, name)
		require.Equal(t, want, got[name], name)
	}
	require.Positive(t, got["index_bytes"])
	require.Less(t, got["memory_bytes"], 256.0*1024, "an idle connection keeps its last frames, if they are small, and the account begins small")
	require.Positive(t, got["lookup_duration_seconds_sum"])
	require.Contains(t, got, `lookup_duration_seconds_bucket{le="5e-06"}`)
	require.Contains(t, got, `lookup_duration_seconds_bucket{le="5"}`)
	for _, reason := range server.CloseReasons() {
		require.Contains(t, got, `connections_closed_total{reason="`+reason+`"}`)
	}
}

// Each counter with a label is there from the start: otherwise Prometheus does not see the first event.
func TestZeros(t *testing.T) {
	for _, cfg := range []lookup.ServiceConfig{{}, {Backend: &brokenStore{}}} {
		srv, _ := start(t, cfg)
		got, _ := scrape(t, NewServerCollector(srv))
		var want []string
		for _, request := range server.RequestTags() {
			want = append(want, `requests_total{request="`+request+`"}`)
		}
		require.Len(t, want, netproto.NumTags)
		for _, request := range server.RequestNames() {
			want = append(want, `requests_not_allowed_total{request="`+request+`"}`)
		}
		if cfg.Backend != nil {
			for _, call := range []string{"exists", "store", "evict", "reset"} {
				want = append(want, `backend_call_duration_seconds_count{call="`+call+`"}`, `backend_call_duration_seconds_bucket{call="`+call+`",le="+Inf"}`)
			}
		}
		for _, name := range want {
			require.Contains(t, got, name)
			if name == `requests_total{request="ping"}` {
				require.EqualValues(t, 1, got[name], "the client's first request")
				continue
			}
			require.Zero(t, got[name], name)
		}
	}
}

// brokenStore is a backend that fails when it is told to.
type brokenStore struct {
	lookuptest.KeyStore
	err error
}

func (s *brokenStore) Name() string { return "broken" }

func (s *brokenStore) Exists(_ context.Context, keys backend.Keys, _ bool) ([]int, error) {
	return make([]int, keys.Len()), s.err
}

func TestBackend(t *testing.T) {
	store := &brokenStore{err: errors.New("no disk")}
	srv, c := start(t, lookup.ServiceConfig{Backend: store, Remote: lookup.RemoteConfig{Timeout: testTimeout, BreakerFailures: 2, BreakerPause: time.Hour}})
	collected := NewServerCollector(srv)
	got, names := scrape(t, collected)
	require.Equal(t, sorted(namesOfService, namesOfBackend, namesOfServer), names)
	require.Equal(t, []float64{1, 0, 0, 1},
		[]float64{got[`backend_state{state="closed"}`], got[`backend_state{state="half-open"}`], got[`backend_state{state="open"}`], got["ready"]})
	for range 5 {
		hit, err := c.Lookup(t.Context(), 160, coordinator.NewHashes(prompt(10), 32))
		require.NoError(t, err)
		require.Zero(t, hit.Tokens)
	}
	got, _ = scrape(t, collected)
	for name, want := range map[string]float64{
		"backend_errors_total": 2, "backend_rounds_total": 2, "backend_keys_total": 20, "backend_rejected_total": 3, "backend_timeouts_total": 0, "lookups_total": 5,
		`backend_state{state="closed"}`: 0, `backend_state{state="open"}`: 1, "ready": 0,
		"lookup_duration_seconds_count": 5, `lookup_hashes_bucket{le="16"}`: 5, `requests_total{request="lookup"}`: 5,
		`backend_call_duration_seconds_count{call="exists"}`: 2, `backend_call_duration_seconds_count{call="store"}`: 0,
	} {
		require.Equal(t, want, got[name], name)
	}
}

// What is beyond all bounds is in the count and in no bucket.
func TestHistogramBeyondBounds(t *testing.T) {
	var got dto.Metric
	require.NoError(t, constHistogram(hashes, api.Histogram{Bounds: []float64{1, 2}, Counts: []uint64{3, 4, 5}, Sum: 6}).Write(&got))
	require.EqualValues(t, 12, got.GetHistogram().GetSampleCount())
	require.EqualValues(t, 6, got.GetHistogram().GetSampleSum())
	for i, want := range []uint64{3, 7} {
		require.Equal(t, want, got.GetHistogram().GetBucket()[i].GetCumulativeCount())
	}
}
