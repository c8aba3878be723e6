package compare

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// small returns options that are good and quick.
func small() Options {
	return Options{
		Hashes: []int{20, 300}, HashTokens: 16, Entries: 400, Rounds: 3, Cell: 15 * time.Millisecond,
		HitShare: 0.5, MissAt: MissRandom, ClientCore: 0, ServerCore: 1, Timeout: 20 * time.Second,
		OnNote: func(string) {}, OnStep: func(string, int, int) {},
	}
}

// The keys are a contract with those who read the line.
func TestReportKeys(t *testing.T) {
	r := Report{
		Hashes: []int{64}, Rounds: 5, Entries: 100, HitShare: 0.9, MissAt: MissTail, Cores: []int{2, 3},
		Rows:    []Row{{Rival: "x", Hashes: 64, Note: "n"}},
		Skipped: []Skipped{{"y", "z"}}, Partial: true,
	}
	var out bytes.Buffer
	require.NoError(t, r.WriteJSON(&out))
	require.Equal(t, 1, bytes.Count(out.Bytes(), []byte("\n")))
	var got map[string]any
	require.NoError(t, json.Unmarshal(out.Bytes(), &got))
	keys := func(of any) []string { return slices.Sorted(maps.Keys(of.(map[string]any))) }
	assert.Equal(t, []string{"cores", "entries", "hash_block_tokens", "hashes", "hit_share", "miss_at", "partial", "rounds", "rows", "skipped", "wrong"}, keys(got))
	assert.Equal(t, []string{
		"hashes", "note", "p50_us", "p50_us_max", "p50_us_min", "p99_us", "ratio", "ratio_max", "ratio_min", "requests", "rival", "us_per_hash", "version", "wrong",
	}, keys(got["rows"].([]any)[0]))
	assert.Equal(t, []string{"rival", "why"}, keys(got["skipped"].([]any)[0]))
}

func TestReportTable(t *testing.T) {
	row := Row{Rival: Hitline, Version: "v1", Note: "raw", Hashes: 64, P50us: 12.3, P50usMin: 11, P50usMax: 14, P99us: 20, Ratio: 1, RatioMin: 1, RatioMax: 1, UsPerHash: 0.19219, Requests: 700}
	slow := row
	slow.Rival, slow.Version, slow.Note, slow.P50us, slow.Ratio, slow.Wrong = Python, "v2", "", 123, 10, 3
	more := row
	more.Hashes = 512
	r := Report{Rounds: 5, HitShare: 1, Entries: 9, Cores: []int{0, 1}, Rows: []Row{row, slow, more}, Skipped: []Skipped{{GoZMQMap, "it is not here"}}}
	var table bytes.Buffer
	require.NoError(t, r.WriteTable(&table))
	assert.Equal(t, `5 rounds, 9 hashes stored, 1 of the chains hit whole; client on core 0, servers on core 1

64 hashes              p50 us             of the rounds       p99 us  to hitline       of the rounds    ns a hash  requests
hitline                 12.30            11.00 to 14.00        20.00        1.00        1.00 to 1.00        192.2       700
python-zmq             123.00            11.00 to 14.00        20.00       10.00        1.00 to 1.00        192.2       700  3 WRONG

512 hashes             p50 us             of the rounds       p99 us  to hitline       of the rounds    ns a hash  requests
hitline                 12.30            11.00 to 14.00        20.00        1.00        1.00 to 1.00        192.2       700

hitline          v1; raw
python-zmq       v2
go-zmq-map       skipped: it is not here
`, table.String())
	table.Reset()
	require.NoError(t, Report{Partial: true}.WriteTable(&table))
	assert.Contains(t, table.String(), "nothing is pinned\npartial: ")
}
