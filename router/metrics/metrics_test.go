package metrics

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/router"
	"github.com/hitline/hitline/router/events"
	"github.com/hitline/hitline/router/fleet"
)

// Each figure is in the metric of its name. The names are an interface: dashboards and alerts are written against them.
func TestCollector(t *testing.T) {
	c := &Collector{
		Models: func() []router.ModelStatus {
			return []router.ModelStatus{{
				ModelKey: router.ModelKey{Tenant: "t", Name: "m"}, Stats: fleet.Stats{Holders: 3, Blocks: 4, Entries: 5, Sets: 6, Bytes: 7, MaxBytes: 8},
				Holders: []fleet.HolderStatus{{Stale: true}, {}, {}}, HashesDiffer: true,
			}}
		},
		Sources: func() []router.SourceStatus {
			return []router.SourceStatus{{Model: "m", Tenant: "t", Engine: "e", Rank: 4, Hashes: router.HashesDiffer, Status: events.Status{
				Name: "s", Endpoint: "tcp://a:1", State: events.StateLive, Stale: true, Blocks: 2, Batches: 3, Stored: 4, Removed: 5, Cleared: 6, Unheld: 7,
				Unknown: 8, Gaps: 9, Lost: 10, Replays: 11, Checks: 16, Restarts: 12, Connects: 13, Errors: 14, Dropped: 15, LastEvent: time.UnixMilli(1500),
			}}, {Status: events.Status{Name: "new", Complete: true}}}
		},
	}
	registry := prometheus.NewPedanticRegistry() // checks that Describe told of all
	registry.MustRegister(c)
	w := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	text := w.Body.String()
	require.Contains(t, text, `hitline_router_source_complete{source="new"} 1`)
	require.Contains(t, text, `hitline_router_source_last_timestamp_seconds{source="new"} 0`)
	for _, kind := range regexp.MustCompile(`(?m)^# TYPE (\w+) (\w+)$`).FindAllStringSubmatch(text, -1) {
		require.Equal(t, strings.HasSuffix(kind[1], "_total"), kind[2] == "counter", kind)
	}
	text = regexp.MustCompile(`(?m)^#.*\n|^.*source="new".*\n|^hitline_router_`).ReplaceAllString(text, "")
	require.Equal(t, want, text)
}

const want = `blocks{model="m",tenant="t"} 4
bytes{model="m",tenant="t"} 7
entries{model="m",tenant="t"} 5
hashes_differ{model="m",tenant="t"} 1
holders{model="m",tenant="t"} 3
max_bytes{model="m",tenant="t"} 8
sets{model="m",tenant="t"} 6
source_batches_total{source="s"} 3
source_blocks{source="s"} 2
source_checks_total{source="s"} 16
source_cleared_total{source="s"} 6
source_complete{source="s"} 0
source_connects_total{source="s"} 13
source_dropped_total{source="s"} 15
source_errors_total{source="s"} 14
source_gaps_total{source="s"} 9
source_hashes{hashes="agree",source="s"} 0
source_hashes{hashes="differ",source="s"} 1
source_hashes{hashes="unchecked",source="s"} 0
source_info{endpoint="tcp://a:1",engine="e",model="m",rank="4",source="s",tenant="t"} 1
source_last_timestamp_seconds{source="s"} 1.5
source_lost_total{source="s"} 10
source_removed_total{source="s"} 5
source_replays_total{source="s"} 11
source_restarts_total{source="s"} 12
source_stale{source="s"} 1
source_state{source="s",state="connecting"} 0
source_state{source="s",state="live"} 1
source_state{source="s",state="replaying"} 0
source_stored_total{source="s"} 4
source_unheld_total{source="s"} 7
source_unknown_total{source="s"} 8
stale_holders{model="m",tenant="t"} 1
`
