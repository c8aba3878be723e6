package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/netproto"
)

// replyStat returns the reply to stat.
func replyStat(document string) string {
	return string(netproto.AppendDone(nil, nil, netproto.AppendFrame(nil, []byte(document), false)))
}

// blockBodies returns the blocks of stat --watch, without their first lines.
func blockBodies(t *testing.T, text string) (bodies []string) {
	t.Helper()
	for block := range strings.SplitSeq(strings.TrimSuffix(text, "\n\n"), "\n\n") {
		title, body, _ := strings.Cut(block, "\n")
		assert.Regexp(t, `^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d  hitline `, title)
		bodies = append(bodies, body)
	}
	return bodies
}

func TestStatWatch(t *testing.T) {
	s := startServe(t, "")
	got := runClient(t, s.address, "stat --watch -i 1ms --requests 3")
	require.Equal(t, exitDone, got.code, got.stderr)
	assert.Empty(t, got.stderr)
	bodies := blockBodies(t, got.stdout)
	require.Len(t, bodies, 3)
	for _, body := range bodies {
		assert.Regexp(t, `(?m)^connections +1 of \d+$`, body)
	}

	other := startServe(t, "") // the first may not have noticed the end of the connection yet
	got = runClient(t, other.address, "stat --watch -i 1ms --requests 3 --json")
	assert.Equal(t, exitDone, got.code)
	for line := range strings.Lines(got.stdout) {
		var stat api.Stat
		require.NoError(t, json.Unmarshal([]byte(line), &stat))
		assert.Equal(t, int64(1), stat.Connections)
	}
	assert.Equal(t, 3, strings.Count(got.stdout, "\n"))
}

// A server that goes away is waited for, and the rates of another instance begin anew.
func TestStatWatchRestart(t *testing.T) {
	first, second := `{"instance":"a","lookups":5,"pools":1}`, `{"instance":"b","lookups":7,"pools":2}`
	script := []string{replyStat(first), hangUp, hangUp, replyStat(second), hangUp, replyStat(second)}
	got := runClient(t, startScript(t, script...), "stat --watch -i 1ms --requests 3")
	require.Equal(t, exitDone, got.code)
	assert.Equal(t, []string{
		"counter  total  a second\nlookups  5\ngauge    now\npools    1",
		"counter  total  a second\nlookups  7\ngauge    now\npools    2",
		"counter  total  a second\ngauge    now\npools    2",
	}, blockBodies(t, got.stdout))
	assert.Regexp(t, `^hitline: tcp://.*; trying again\nhitline: the server was restarted\nhitline: tcp://.*; trying again\nhitline: the server answers again\n$`, got.stderr)

	got = runClient(t, startScript(t, script...), "stat --watch -i 1ms --requests 3 --json")
	require.Equal(t, exitDone, got.code)
	assert.Equal(t, first+"\n"+second+"\n"+second+"\n", got.stdout)
	assert.Contains(t, got.stderr, "the server was restarted\n")
}

// A server that was never there, or refuses, ends it.
func TestStatWatchFails(t *testing.T) {
	for _, test := range []struct {
		script []string
		code   int
		want   string
	}{
		{[]string{hangUp}, exitNoConnection, "tcp://"},
		{[]string{replyStat("{}"), replyRefused}, exitFailed, "reason"},
		{[]string{replyStat("{}"), replyStat("[]")}, exitFailed, "bad answer to stat"},
	} {
		got := runClient(t, startScript(t, test.script...), "stat --watch -i 1ms --json")
		assert.Equal(t, test.code, got.code, test)
		assert.Contains(t, got.stdout, `"exit":`)
		assert.Contains(t, got.stderr, test.want)
	}
}

func TestStatWatchInterrupted(t *testing.T) {
	for _, test := range interruptions("1ms") {
		t.Run(test.name, func(t *testing.T) {
			lines, stderr, code := test.run(t, replyStat("{}"), "stat", "--watch", "--interval", test.interval, "--json")
			assert.Equal(t, []string{"{}"}, lines)
			assert.Equal(t, exitDone, code)
			assert.Empty(t, stderr)
		})
	}
}

// Nothing that a server sends controls the terminal.
func TestStatIsPrintable(t *testing.T) {
	document := replyStat(`{"a\u001b[2J":1,"version":"\u001b[31m","pool":"\u009b"}`)
	for _, line := range []string{"stat", "stat --watch -i 1ms --requests 1"} {
		got := runClient(t, startScript(t, document), line)
		assert.Equal(t, exitDone, got.code)
		assert.Contains(t, got.stdout, "a.[2J ")
		assert.NotContains(t, got.stdout, "\x1b")
		assert.NotContains(t, got.stdout, "\u009b")
	}
}

func TestStatSample(t *testing.T) {
	at := time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC)
	sample := func(after time.Duration, document string) *statSample {
		s, err := readSample(json.RawMessage(document), at.Add(after))
		require.NoError(t, err)
		return s
	}
	before := sample(0, `{"version":"v1","start_time":"2026-11-23T07:00:00Z","backend":"memory","lookups":5,"stored":9,"failed":0,
		"closed":{"peer":1},"entries":3,"max_entries":0,"bytes":10,"max_bytes":20,"pool_names":["a"]}`)
	assert.Equal(t, `2026-11-23 08:00:00  hitline v1  up 1h0m0s  memory
counter      total  a second
closed.peer  1
lookups      5
stored       9
gauge        now
bytes        10 of 20
entries      3`, before.format(nil))
	now := sample(4*time.Second, `{"version":"v1","start_time":"2026-11-23T08:00:05Z","backend":"redis","backend_state":"open","pool":"p","lookups":1005,
		"stored":9,"failed":1,"evicted":18446744073709551615,"closed":{"peer":0,"idle_timeout":3},"entries":1,"max_entries":2}`)
	assert.Equal(t, `2026-11-23 08:00:04  hitline v1  up 0s  pool p  redis, breaker open
counter              total  a second
closed.idle_timeout  3      0.75
closed.peer          0      -
failed               1      0.25
lookups              1005   250
gauge                now
entries              1 of 2`, now.format(before))
}

// Every number of api.Stat is known as a counter or a gauge. A gauge that is taken for a counter
// has a rate, and is not shown while it does not change.
func TestGauges(t *testing.T) {
	counters := strings.Fields(`lookups hit_tokens miss_tokens stored evicted refused backend_errors backend_timeouts backend_rejected
		backend_rounds backend_keys backend_shared accept_errors memory_refused turns_cut failed dropped commands_ignored anchored
		anchored_undetermined anchored_fallbacks bytes_copied auth_failures`)
	var want, got []string
	for _, field := range reflect.VisibleFields(reflect.TypeFor[api.Stat]()) {
		if field.Type.Kind() == reflect.Int64 {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			want = append(want, name)
		}
	}
	for name := range gauges {
		got = append(got, name)
	}
	assert.ElementsMatch(t, want, append(got, counters...))
}

// SIGINT ends the program with 0.
func TestStatWatchSIGINT(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self, "stat", "--watch", "--interval", "1h", "--connect", startScript(t, replyStat("{}")))
	cmd.Env = append(os.Environ(), asProgram+"=1")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	_, err = out.Read(make([]byte, 1))
	require.NoError(t, err)
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	assert.NoError(t, cmd.Wait())
}
