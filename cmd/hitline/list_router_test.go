package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
)

// Each rank has a line, also one without a source; first those that count for nothing.
func TestRouterReplies(t *testing.T) {
	source := func(engine, fields string) string {
		return `{"model": "m", "tenant_id": "default", "instance_id": "` + engine + `", "dp_rank": 0, ` + fields + `}`
	}
	for _, test := range []struct {
		reply string
		code  int
		out   string
	}{
		{`{"time": "2026-11-28T12:00:00Z", "models": [], "sources": []}`, exitDone, "no engine is followed; name them under router.sources, or register them\n"},
		{
			`{"time": "2026-11-28T12:00:00Z", "models": [
				{"model": "m", "tenant_id": "default", "blocks": 7, "bytes": 1, "max_bytes": 2097152, "holders": [
					{"instance_id": "a", "dp_rank": 0, "blocks": 5}, {"instance_id": "a", "dp_rank": 1, "stale": true, "blocks": 2}]},
				{"model": "n\u001b", "tenant_id": "t", "max_bytes": 0, "hashes_differ": true, "holders": []}],
			"sources": [` + source("a", `"state": "live", "complete": true, "blocks": 5, "last_event": "2026-11-28T11:59:57Z"`) + `,
				` + source("b", `"state": "live", "complete": false, "last_error": "lost", "hashes_reason": "xxhash"`) + `,
				` + source("c", `"state": "connecting", "stale": true`) + `,
				` + source("d", `"state": "connecting", "stale": true, "last_error": "refused\u001b", "last_event": "2026-11-28T12:00:01Z"`) + `]}`, exitDone,
			`model  engine  rank  state       last event  blocks  problem
m      a       1     predicted   -           2       -
m      c       0     stale       -           0       connecting
m      d       0     stale       0s ago      0       refused\x1b
m      a       0     live        3s ago      5       -
m      b       0     incomplete  -           0       lost; hashes differ: xxhash
model m: 7 different blocks in 1 of 2 MiB
model t/n\x1b: 0 different blocks in 0 of 0 MiB; token ids find little, as no engine is known to hash as its hash says
`,
		},
		{`{"models": []}`, exitFailed, ""},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, test.reply) }))
		got := hitline(t, "", "router", "--connect", s.URL)
		s.Close()
		assert.Equal(t, test.code, got.code, got.stderr)
		assert.Equal(t, test.out, got.stdout)
	}
}
