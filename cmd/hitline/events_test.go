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

// The monitor prints what an engine has said. The groups of a pool are described by it.
func TestEventsCommand(t *testing.T) {
	p := eventstest.New(t)
	a := eventKeys("a", 3)
	window := eventstest.Stored(nil, a...)
	window["kv_cache_spec_kind"], window["kv_cache_spec_sliding_window"] = "sliding_window", 128
	p.Publish(false, eventstest.Stored(nil, a...))
	p.Publish(false, window)
	p.Publish(false, eventstest.Removed(a[2]), eventstest.Cleared())
	p.Publish(false, map[string]any{"type": "New\x1b"})
	got := hitline(t, "", "events", p.Endpoint, "--replay", p.Replay, "-n", "4")
	assert.Equal(t, exitDone, got.code, got.stderr)
	full := strings.Repeat("61", 31)
	assert.Equal(t, strings.Join([]string{
		`{"sequence":0,"time":0,"rank":0,"events":[{"type":"stored","blocks":3,"block_size":16,"group":0,"medium":"GPU","first":"` + full + `00","last":"` + full + `02"}]}`,
		`{"sequence":1,"time":1,"rank":0,"events":[{"type":"stored","blocks":3,"block_size":16,"group":0,"kind":"sliding_window","sliding_window":128,"medium":"GPU","first":"` +
			full + `00","last":"` + full + `02"}]}`,
		`{"sequence":2,"time":2,"rank":0,"events":[{"type":"removed","blocks":1,"group":0,"medium":"GPU","first":"` + full + `02","last":"` + full + `02"},{"type":"cleared"}]}`,
		`{"sequence":3,"time":3,"rank":0,"events":[{"type":"unknown"}]}`, "",
	}, "\n"), got.stdout)
}

// What a hostile publisher says neither ends the monitor nor reaches a terminal as a command.
func TestEventsCommandHostile(t *testing.T) {
	event := eventstest.Stored(nil, eventKeys("a", 1)...)
	event["medium"], event["lora_name"] = "G\x1b[31m\u009b2J\x7f\xff", "a\nb\u202ec"
	for _, at := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), math.MaxFloat64, -math.MaxFloat64, -1} {
		var out bytes.Buffer
		m := &monitor{out: &out, ended: make(chan error, 1)}
		m.observe(0, eventstest.Encode(at, event))
		assert.Empty(t, m.ended, "%v", at)
		line, ends := strings.CutSuffix(out.String(), "\n")
		assert.True(t, ends)
		assert.False(t, strings.ContainsFunc(line, func(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) }), "%q", line)
		var got batchLine
		require.NoError(t, json.Unmarshal([]byte(line), &got), line)
		assert.Empty(t, got.Error)
		assert.Equal(t, "G\x1b[31m\u009b2J\x7f?", got.Events[0].Medium)
		assert.Equal(t, "a\nb\u202ec", got.Events[0].LoRA)
	}
	var out bytes.Buffer
	m := &monitor{out: &out, batches: 1, ended: make(chan error, 1)}
	m.observe(7, []byte{0xc0})
	assert.NoError(t, <-m.ended)
	assert.Contains(t, out.String(), `{"sequence":7,"time":0,"events":[],"error":"`)
}

func TestEventsCommandErrors(t *testing.T) {
	p := eventstest.New(t)
	for _, args := range [][]string{{}, {"a", "b"}, {"nowhere"}, {p.Endpoint, "--batches", "-1"}, {p.Endpoint, "--replay", "x"}} {
		assert.Equal(t, exitUsage, hitline(t, "", append([]string{"events"}, args...)...).code, args)
	}
}
