package replay

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/hitline/hitline/bench/measure"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var full = Report{
	Setup: measure.Setup{
		Started: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Command: []string{"hitbench", "replay"}, Version: "v1.2.3", Commit: "abc",
		Machine: measure.Machine{Cores: 2, Platform: "linux/amd64", Go: "go1.26", GOMAXPROCS: 2, Kernel: "avx2"},
	},
	Trace: "conversation_trace.jsonl", Connections: 1, BlockSize: 512,
	Requests: 12031, Blocks: 288500, HitBlocks: 105710, HitTokens: 54123520, Wrong: 1, Refused: 2,
	HitRatio: 0.366412, Seconds: 3.25, RequestsPerS: 3701.8,
	Latency:   measure.Latency{P50us: 41.2, P90us: 80, P99us: 120, P999us: 250.5, MaxUs: 1000, MeanUs: 50},
	IntervalS: 0.2, Windows: []Window{
		{0, 6000, 100000, 40000, 0.4, 40, 110},
		{0.2, 6031, 188500, 65710, 0.348594, 42, 125.5},
	},
}

func TestReportJSON(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, measure.WriteJSON(&out, full))
	const body = `{"setup":{"started":"2026-01-02T03:04:05Z","command":["hitbench","replay"],"version":"v1.2.3","commit":"abc","seed":0,` +
		`"machine":{"cpu":"","cores":2,"platform":"linux/amd64","system":"","go":"go1.26","gomaxprocs":2,"kernel":"avx2"}},"trace":"conversation_trace.jsonl","connections":1,"block_size":512,"speed":0,` +
		`"requests":12031,"blocks":288500,"hit_blocks":105710,"hit_tokens":54123520,"hit_ratio":0.366412,"wrong":1,"refused":2,` +
		`"seconds":3.25,"requests_per_s":3701.8,"behind_max_ms":0,"p50_us":41.2,"p90_us":80,"p99_us":120,` +
		`"p999_us":250.5,"max_us":1000,"mean_us":50,"interval_s":0.2,"windows":[` +
		`{"start_s":0,"requests":6000,"blocks":100000,"hit_blocks":40000,"hit_ratio":0.4,"p50_us":40,"p99_us":110},` +
		`{"start_s":0.2,"requests":6031,"blocks":188500,"hit_blocks":65710,"hit_ratio":0.348594,"p50_us":42,"p99_us":125.5}]`
	assert.Equal(t, body+"}\n", out.String())

	out.Reset()
	partial := full
	partial.Partial = true
	require.NoError(t, measure.WriteJSON(&out, partial))
	assert.Equal(t, body+",\"partial\":true}\n", out.String())
}

func TestReportTable(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, full.WriteTable(&out))
	assert.Equal(t, `setup        hitbench v1.2.3, linux/amd64, 2 cores of an unnamed processor, go1.26, kernel avx2
trace        conversation_trace.jsonl
connections  1
block size   512 tokens
requests     12,031, 3702 a second
blocks       288,500
hit blocks   105,710, 36.6 %
hit tokens   54,123,520
wrong        1
refused      2
time         3.250 s
lookup       p50 41.2 us, p90 80.0, p99 120.0, p99.9 250.5, at most 1000.0
`, out.String())

	out.Reset()
	require.NoError(t, Report{Trace: "t", Partial: true}.WriteTable(&out))
	assert.Contains(t, out.String(), "trace        t (in part)\n")
	assert.Contains(t, out.String(), "requests     0\nblocks       0\nhit blocks   0\n")
}

// With a speed: what is due, and the windows, in few.
func TestReportTableOfTimes(t *testing.T) {
	r := full
	r.Connections, r.Speed, r.BehindMaxMs = 3, 100, 12.5
	r.rows = r.Windows
	var out bytes.Buffer
	require.NoError(t, r.WriteTable(&out))
	assert.Contains(t, out.String(), "speed        100x the trace's\n"+
		"behind       12.500 ms at worst; latency counts from when a lookup was due\n")
	assert.Contains(t, out.String(), `
trace time  requests  hit blocks  lookup p50  lookup p99
       0 s     6,000      40.0 %     40.0 us    110.0 us
     0.2 s     6,031      34.9 %     42.0 us    125.5 us
`)
	r.Speed = 0
	out.Reset()
	require.NoError(t, r.WriteTable(&out))
	assert.Contains(t, out.String(), "\n time  requests ")
	assert.NotContains(t, out.String(), "behind")
}

func TestShare(t *testing.T) {
	assert.Equal(t, 0.333333, share(1, 3))
	assert.Zero(t, share(0, 0))
}

func TestReportWriteFails(t *testing.T) {
	cause := errors.New("full")
	w := writerFunc(func([]byte) (int, error) { return 0, cause })
	require.ErrorIs(t, full.WriteTable(w), cause)
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestUnits(t *testing.T) {
	assert.Equal(t, 1.234568, seconds(1_234_567_890*time.Nanosecond))
}
