package main

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/certtest"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/access"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/server"
)

// All that connects sends the token, and a replay over TLS trusts the CA that it is given.
func TestTokenAndTLS(t *testing.T) {
	const token = "correct-horse-battery"
	dir := t.TempDir()
	path := filepath.Join(dir, "token")
	require.NoError(t, os.WriteFile(path, []byte(token), 0o600))
	ca := certtest.NewCA("bench")
	caFile := ca.WriteFile(filepath.Join(dir, "ca.crt"))
	rules, err := access.NewRules(0, []access.Credential{{Name: "bench", Digest: access.DigestOf([]byte(token)), Permissions: access.All}})
	require.NoError(t, err)
	secured := &tls.Config{Certificates: []tls.Certificate{ca.Leaf("127.0.0.1")}}
	s := serve(t, lookup.ServiceConfig{Pool: coordinator.Pool{HashBlockSize: 16}},
		server.Listener{Address: "tcp://127.0.0.1:0", Settings: server.Settings{Rules: rules}},
		server.Listener{Address: "tls://127.0.0.1:0", Settings: server.Settings{Rules: rules, TLS: secured}})
	plain, secure := s.Addrs()[0], s.Addrs()[1]
	hitbench := func(args ...string) (code int, stderr string) {
		require.NoError(t, s.Pools()[0].Service.Reset(t.Context())) // a replay begins with none of its blocks
		r := hitbench(t, args...)
		return r.code, r.stderr
	}
	commands := map[string]string{
		"run":    "run --entries 100 --warmup 0s -n 50",
		"replay": "replay --trace " + traceFile(t, small),
	}
	for name, line := range commands {
		t.Run(name, func(t *testing.T) {
			args := strings.Fields(line)
			code, stderr := hitbench(append(args, "--connect", plain, "--token-file", path)...)
			require.Equal(t, exitDone, code, stderr)
			code, stderr = hitbench(append(args, "--connect", plain)...)
			assert.NotEqual(t, exitDone, code)
			assert.Contains(t, stderr, "not allowed")

			code, stderr = hitbench(append(args, "--connect", secure, "--token-file", path, "--tls-ca", caFile)...)
			if name == "run" { // its sockets are used by system calls
				assert.Equal(t, exitUsage, code, stderr)
				return
			}
			require.Equal(t, exitDone, code, stderr)
			code, stderr = hitbench(append(args, "--connect", secure, "--token-file", path)...)
			assert.Equal(t, exitLost, code, stderr)
		})
	}
	t.Run("variables", func(t *testing.T) {
		t.Setenv(api.TokenFileVariable, path)
		t.Setenv("HITLINE_TLS_CA", caFile)
		code, stderr := hitbench("replay", "--trace", traceFile(t, small), "--connect", secure)
		require.Equal(t, exitDone, code, stderr)
	})
	for _, line := range []string{
		"run --start --token-file " + path, "run --tls-ca " + caFile, "run --token-file " + dir + "/none",
		"replay --trace " + excerpt + " --connect " + secure + " --tls-key " + caFile,
	} {
		code, stderr := hitbench(strings.Fields(line)...)
		assert.Equal(t, exitUsage, code, line)
		assert.Equal(t, 1, strings.Count(withoutHint(stderr), "\n"), stderr)
	}
	_, stderr := hitbench("replay", "--trace", excerpt, "--timeout", "1ms", "--connect", "192.0.2.1:1", "--token-file", path)
	assert.Contains(t, stderr, "hitbench: warning: the token goes to 192.0.2.1:1 in plain text")
}
