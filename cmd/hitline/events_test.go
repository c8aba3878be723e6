package main

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/eventstest"
)

// eventKeys returns hashes of 32 bytes.
func eventKeys(name string, n int) (hashes [][]byte) {
	chain := bytes.Repeat([]byte(name), 32*n)[:32*n]
	for i := range n {
		chain[32*i+31] = byte(i)
		hashes = append(hashes, chain[32*i:32*i+32])
	}
	return hashes
}

// The monitor prints what an engine has said, gaps included.
func TestEventsCommand(t *testing.T) {
	p := eventstest.New(t)
	a := eventKeys("a", 3)
	p.Publish(false, eventstest.Stored(nil, a...))
	p.Publish(false, eventstest.Removed(a[2]), eventstest.Cleared())
	p.Publish(false, map[string]any{"type": "New\x1b"})
	got := hitline(t, "", "events", p.Endpoint, "--replay", p.Replay, "-n", "3")
	assert.Equal(t, exitDone, got.code, got.stderr)
	assert.Equal(t, strings.Join([]string{
		"#0 00:00:00.000 rank 0: stored 3 group 0 GPU 6161616161616100 to 6161616161616102",
		"#1 00:00:01.000 rank 0: removed 1 group 0 GPU 6161616161616102; cleared",
		"#2 00:00:02.000 rank 0: unknown", "",
	}, "\n"), got.stdout)
	got = hitline(t, "", "events", p.Endpoint, "--replay", p.Replay, "-n", "1", "--json")
	full := strings.Repeat("61", 31)
	assert.Equal(t, `{"sequence":0,"time":0,"rank":0,"events":[{"type":"stored","blocks":3,"block_size":16,"group":0,"medium":"GPU","first":"`+full+`00","last":"`+full+`02"}]}`+"\n", got.stdout)
}

// The groups of an engine are in its events: a pool is described by them.
func TestEventsCommandGroups(t *testing.T) {
	p := eventstest.New(t)
	event := eventstest.Stored(nil, eventKeys("a", 1)...)
	event["kv_cache_spec_kind"], event["kv_cache_spec_sliding_window"] = "sliding_window", 128
	p.Publish(false, event)
	got := hitline(t, "", "events", p.Endpoint, "--replay", p.Replay, "--batches", "1")
	assert.Equal(t, "#0 00:00:00.000 rank 0: stored 1 group 0 sliding_window 128 GPU 6161616161616100\n", got.stdout)
	got = hitline(t, "", "events", p.Endpoint, "--replay", p.Replay, "--batches", "1", "--json")
	assert.Contains(t, got.stdout, `"group":0,"kind":"sliding_window","sliding_window":128,"medium":"GPU"`)
}

func TestEventsCommandGap(t *testing.T) {
	var out bytes.Buffer
	m := &monitor{out: &out, ended: make(chan error, 1), seen: make(chan struct{}, 1), batches: 3}
	for _, seq := range []uint64{7, 10, 3} {
		m.observe(seq, []byte{0xc0})
	}
	assert.NoError(t, <-m.ended)
	lines := strings.Split(out.String(), "\n")
	assert.Len(t, lines, 6)
	assert.Contains(t, lines[0], "#7 00:00:00.000: cannot be read: events: ")
	assert.Equal(t, "gap: batches 8 to 9 are missing", lines[1])
	assert.Equal(t, "restart: batch 3 follows 10", lines[3])
}

// What a hostile publisher says neither ends the monitor nor reaches a terminal as a command.
func TestEventsCommandHostile(t *testing.T) {
	event := eventstest.Stored(nil, eventKeys("a", 1)...)
	event["medium"], event["lora_name"] = "G\x1b[31m\u009b2J\x7f\xff", "a\nb\u202ec"
	for _, asJSON := range []bool{false, true} {
		for _, at := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), math.MaxFloat64, -math.MaxFloat64, -1} {
			var out bytes.Buffer
			m := &monitor{out: &out, json: asJSON, ended: make(chan error, 1), seen: make(chan struct{}, 1)}
			m.observe(0, eventstest.Encode(at, event))
			assert.Empty(t, m.ended, "%v", at)
			line, ends := strings.CutSuffix(out.String(), "\n")
			assert.True(t, ends)
			assert.NotContains(t, line, "cannot be read")
			assert.False(t, strings.ContainsFunc(line, func(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) }), "%q", line)
			if asJSON {
				var got batchLine
				require.NoError(t, json.Unmarshal([]byte(line), &got), line)
				assert.Equal(t, "G\x1b[31m\u009b2J\x7f\ufffd", got.Events[0].Medium)
				assert.Equal(t, "a\nb\u202ec", got.Events[0].LoRA)
			}
		}
	}
}

func TestEventsCommandErrors(t *testing.T) {
	p := eventstest.New(t)
	got := hitline(t, "", "events", p.Endpoint, "--timeout", "50ms")
	assert.Equal(t, exitNoConnection, got.code)
	assert.Contains(t, got.stderr, "no batch for 50ms")
	for _, args := range [][]string{{}, {"a", "b"}, {"nowhere"}, {p.Endpoint, "--batches", "-1"}, {p.Endpoint, "--timeout", "-1s"}, {p.Endpoint, "--replay", "x"}} {
		assert.Equal(t, exitUsage, hitline(t, "", append([]string{"events"}, args...)...).code, args)
	}
}
