package metrics

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/router"
	"github.com/hitline/hitline/router/events"
)

// Each field of a source is in the metric of its name.
func TestEvents(t *testing.T) {
	var sources []router.SourceStatus
	c := NewEventsCollector(func() []router.SourceStatus { return sources })
	got, _ := scrape(t, c)
	require.Empty(t, got)

	sources = []router.SourceStatus{{Model: "m", Tenant: "t", Engine: "i", Rank: 4, Status: events.Status{
		Name: "e", Endpoint: "tcp://a:1", State: events.StateLive, Stale: true, Blocks: 2, Batches: 3, Stored: 4, Removed: 5, Cleared: 6, Unheld: 7,
		Unknown: 8, Gaps: 9, Lost: 10, Replays: 11, Restarts: 12, Connects: 13, Errors: 14, LastEvent: time.UnixMilli(1500),
	}}, {Status: events.Status{Name: "f", Complete: true}}}
	got, names := scrape(t, c)
	require.Equal(t, sorted(namesOfEvents), names)
	want := map[string]float64{
		`fleet_source_info{endpoint="tcp://a:1",instance_name="i",model="m",rank="4",source="e",tenant="t"}`: 1,

		`events_state{source="e",state="live"}`: 1, `events_state{source="e",state="connecting"}`: 0, `events_state{source="e",state="replaying"}`: 0,
	}
	for name, value := range map[string]float64{
		"batches_total": 3, "blocks": 2, "cleared_total": 6, "complete": 0, "connects_total": 13, "errors_total": 14, "gaps_total": 9, "hints_total": 7,
		"holes_total": 10, "last_timestamp_seconds": 1.5, "removed_total": 5, "replays_total": 11, "restarts_total": 12, "stale": 1, "stored_total": 4, "unknown_total": 8,
	} {
		want["router_source_"+name+`{source="e"}`] = value
	}
	for name, value := range want {
		require.Contains(t, got, name)
		require.Equal(t, value, got[name], name)
	}
	require.Len(t, got, 2*len(want))
	require.Equal(t, 1.0, got[`events_complete{source="f"}`])
	require.Zero(t, got[`events_last_timestamp_seconds{source="f"}`])
}
