package compare

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/bench/process"
)

// small returns options that are good and quick.
func small() Options {
	return Options{
		Hashes: []int{20, 300}, HashTokens: 16, Entries: 400, Rounds: 3, TimePerRival: 15 * time.Millisecond, Seed: 1,
		HitShare: 0.5, MissAt: MissRandom, ClientCore: -1, Timeout: 20 * time.Second,
		OnNote: func(string) {}, OnStep: func(string, int, int) {},
	}
}

// The keys are a contract with those who read the line.
func TestReportKeys(t *testing.T) {
	r := Report{
		Hashes: []int{64}, Rounds: 5, Entries: 100, HitShare: 0.9, MissAt: MissTail, Placement: process.Placement{Client: []int{2}, Server: []int{3}},
		Rows:    []Row{{Rival: "x", Hashes: 64, Note: "n", RatioZMTP: 2}},
		Skipped: []Skipped{{"y", Usual, "z"}}, Partial: true,
	}
	var out bytes.Buffer
	require.NoError(t, r.WriteJSON(&out))
	require.Equal(t, 1, bytes.Count(out.Bytes(), []byte("\n")))
	var got map[string]any
	require.NoError(t, json.Unmarshal(out.Bytes(), &got))
	keys := func(of any) []string { return slices.Sorted(maps.Keys(of.(map[string]any))) }
	assert.Equal(t, []string{
		"chains", "client_cores", "entries", "hash_block_tokens", "hashes", "hit_share", "miss_at", "partial", "rotate_bytes", "rounds", "rows", "server_cores",
		"setup", "shared_cores", "skipped", "wrong",
	}, keys(got))
	assert.Equal(t, []string{
		"client", "hashes", "max_us", "note", "p50_us", "p50_us_max", "p50_us_min", "p99_us", "ratio", "ratio_max", "ratio_min", "ratio_zmtp", "requests",
		"rival", "us_per_hash", "version", "way", "wrong",
	}, keys(got["rows"].([]any)[0]))
	assert.Equal(t, []string{"rival", "way", "why"}, keys(got["skipped"].([]any)[0]))
}

func TestReportTable(t *testing.T) {
	row := Row{
		Rival: Hitline, Way: Prepared, Client: "raw socket", Version: "v1", Note: "raw", Hashes: 64,
		P50us: 12.3, P50usMin: 11, P50usMax: 14, P99us: 20, MaxUs: 99, Ratio: 1, RatioMin: 1, RatioMax: 1, UsPerHash: 0.19219, Requests: 700,
	}
	floor := row
	floor.Rival, floor.Note = Floor, ""
	slow := row
	slow.Rival, slow.Version, slow.Note, slow.P50us, slow.Ratio, slow.RatioZMTP, slow.Wrong = Python, "v2", "", 123, 10, 9.5, 3
	usual := row
	usual.Way, usual.Client = Usual, "lookup/client"
	more := row
	more.Hashes = 512
	r := Report{
		Rounds: 5, HitShare: 1, Entries: 9, Placement: process.Placement{Client: []int{0}, Server: []int{1}}, Rows: []Row{floor, row, slow, usual, more},
		Skipped: []Skipped{{Rival: GoZMQMap, Why: "it is not here"}, {HitlineZMTP, Usual, "no pyzmq"}},
	}
	var table bytes.Buffer
	require.NoError(t, r.WriteTable(&table))
	setup, rest, _ := strings.Cut(table.String(), "\n")
	assert.Equal(t, "setup  "+r.Setup.String(), setup)
	assert.Equal(t, `5 rounds, 9 hashes stored, 100 % of the chains hit whole; client [0], server [1]
one core for each server: those with several threads, such as pyzmq's, wait for it more than on a larger machine

64 hashes, prepared bytes over a raw socket; ratios to hitline asked so
                  client                p50 us           of the rounds      p99 us      max us     ratio     of the rounds    zmtp  ns a hash requests
floor             raw socket             12.30          11.00 to 14.00       20.00       99.00      1.00      1.00 to 1.00              192.2      700
hitline           raw socket             12.30          11.00 to 14.00       20.00       99.00      1.00      1.00 to 1.00              192.2      700
python-zmq        raw socket            123.00          11.00 to 14.00       20.00       99.00     10.00      1.00 to 1.00    9.50      192.2      700  3 WRONG

64 hashes, each by its users' client; ratios to hitline by lookup/client
                  client                p50 us           of the rounds      p99 us      max us     ratio     of the rounds    zmtp  ns a hash requests
hitline           lookup/client          12.30          11.00 to 14.00       20.00       99.00      1.00      1.00 to 1.00              192.2      700

512 hashes, prepared bytes over a raw socket; ratios to hitline asked so
                  client                p50 us           of the rounds      p99 us      max us     ratio     of the rounds    zmtp  ns a hash requests
hitline           raw socket             12.30          11.00 to 14.00       20.00       99.00      1.00      1.00 to 1.00              192.2      700

floor             v1; prepared only: nobody uses it: it is the least that a prepared request can take
hitline           v1; raw
python-zmq        v2
go-zmq-map        skipped: it is not here
hitline-zmtp      skipped by its usual client: no pyzmq
`, rest)
	table.Reset()
	require.NoError(t, Report{Partial: true, Placement: process.Placement{Shared: true}}.WriteTable(&table))
	assert.Contains(t, table.String(), "not pinned\npartial: ")
}
