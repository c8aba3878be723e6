package metrics

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/lookup/snapshot"
)

func TestSnapshots(t *testing.T) {
	st := &snapshot.Status{}
	c := NewSnapshotCollector(func() *snapshot.Status { return st })
	got, names := scrape(t, c)
	require.Equal(t, namesOfSnapshots, names)
	for name, value := range got {
		require.Zero(t, value, name)
	}

	st = &snapshot.Status{Written: time.Unix(1000, 5e8), Seconds: 2.5, Entries: 3, Bytes: 4, Failed: 5, LoadedEntries: 6}
	got, _ = scrape(t, c)
	require.Equal(t, map[string]float64{
		"snapshot_last_timestamp_seconds": 1000.5, "snapshot_last_duration_seconds": 2.5, "snapshot_last_entries": 3,
		"snapshot_last_bytes": 4, "snapshots_failed_total": 5, "snapshot_loaded_entries": 6,
	}, got)
}
