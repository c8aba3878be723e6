package httpapi

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/logtest"
	"github.com/hitline/hitline/router"
	"github.com/hitline/hitline/router/fleet"
)

// Platforms register again and again. The log has only what changes, at its default level.
func TestEqualRegistrationsAreQuiet(t *testing.T) {
	var log logtest.Buffer
	h := New(Config{
		Service: newService(t, router.Config{
			Models: []router.Model{{ModelKey: llama, Fleet: fleet.Config{BlockSize: 16}}}, Allow: []string{"tcp://127.0.0.1:*"},
		}),
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	for _, test := range []struct {
		fields string
		lines  int
	}{
		{`"endpoint": "tcp://127.0.0.1:1"`, 1},
		{`"endpoint": "tcp://127.0.0.1:1"`, 1},
		{`"endpoint": "tcp://127.0.0.1:1", "block_size": 16, "type": "vLLM", "tenant_id": "default", "name": "tcp://127.0.0.1:1"`, 1},
		{`"endpoint": "tcp://127.0.0.1:2"`, 2},
	} {
		status, reply := do(t, h, "POST", "/register", `{"model": "llama", "instance_id": "a", `+test.fields+`}`)
		require.Equal(t, 200, status, reply)
		require.Equal(t, test.lines, strings.Count(log.String(), `msg="source registered"`), test.fields)
	}
}
