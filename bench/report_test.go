package bench

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var full = Report{
	Trace: "conversation_trace.jsonl", Conns: 1, HashBlockTokens: 512,
	Requests: 12031, Blocks: 288500, HitBlocks: 105710, HitTokens: 54123520, Mismatches: 1, Errors: 2,
	Seconds: 3.25, LookupP50us: 41.2, LookupP99us: 120,
}

func TestReportJSON(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, full.WriteJSON(&out))
	const body = `{"trace":"conversation_trace.jsonl","conns":1,"hash_block_tokens":512,` +
		`"requests":12031,"blocks":288500,"hit_blocks":105710,"hit_tokens":54123520,"mismatches":1,"errors":2,` +
		`"seconds":3.25,"lookup_p50_us":41.2,"lookup_p99_us":120`
	assert.Equal(t, body+"}\n", out.String())

	out.Reset()
	partial := full
	partial.Partial = true
	require.NoError(t, partial.WriteJSON(&out))
	assert.Equal(t, body+",\"partial\":true}\n", out.String())
}

func TestReportTable(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, full.WriteTable(&out))
	assert.Equal(t, `trace        conversation_trace.jsonl
connections  1
hash block   512 tokens
requests     12,031, 3702 a second
blocks       288,500
hit blocks   105,710, 36.6 %
hit tokens   54,123,520
mismatches   1
errors       2
time         3.250 s
lookup p50   41.2 us
lookup p99   120.0 us
`, out.String())

	out.Reset()
	require.NoError(t, Report{Trace: "t", Partial: true}.WriteTable(&out))
	assert.Contains(t, out.String(), "trace        t (in part)\n")
	assert.Contains(t, out.String(), "requests     0\nblocks       0\nhit blocks   0\n")
}

func TestReportWriteFails(t *testing.T) {
	cause := errors.New("full")
	w := writerFunc(func([]byte) (int, error) { return 0, cause })
	require.ErrorIs(t, full.WriteJSON(w), cause)
	require.ErrorIs(t, full.WriteTable(w), cause)
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestGrouped(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 123456: "123,456", 1234567: "1,234,567"} {
		assert.Equal(t, want, grouped(n))
	}
}

func TestUnits(t *testing.T) {
	assert.Equal(t, 12.3, micros(12_345))
	assert.Equal(t, 0.1, micros(50))
	assert.Equal(t, 1.234568, seconds(1_234_567_890*time.Nanosecond))
}
