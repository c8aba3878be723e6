package config

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Only addresses on loopback are of this machine alone.
func TestMetricsIsLocal(t *testing.T) {
	for address, want := range map[string]bool{
		`""`: false, "127.0.0.1:9557": true, "localhost:9557": true, `"[::1]:9557"`: true,
		"0.0.0.0:9557": false, `"[::]:9557"`: false, "10.0.0.1:9557": false, "localhost.example:9557": false,
	} {
		assert.Equal(t, want, load(t, "metrics: "+address+"\n").MetricsIsLocal(), address)
	}
}

// Names for the HTTP ports are names of hosts alone.
func TestHTTPHosts(t *testing.T) {
	const metrics = "metrics: 127.0.0.1:9557\n"
	assert.Equal(t, []string{"hitline.example.com", "h"}, load(t, metrics+"http_hosts: [hitline.example.com, h]\n").HTTPHosts)
	for _, name := range []string{`""`, "http://h", "h:9557", "h/", `"*"`, `"*.example.com"`, `"::1"`, "a b"} {
		_, err := Load(Source{File: write(t, metrics+"http_hosts: [a, "+name+"]\n")})
		assert.ErrorContains(t, err, "http_hosts[1]: ", name)
		assert.ErrorContains(t, err, "is no name of a host", name)
	}
	_, err := Load(Source{File: write(t, "http_hosts: [a]\n")})
	assert.ErrorContains(t, err, "http_hosts: needs metrics or router.listen")
}

// What everybody can do at an HTTP port beyond loopback is said.
func TestHTTPWarnings(t *testing.T) {
	const (
		public = "metrics: 0.0.0.0:9557\n"
		router = "router: {models: [{name: m, block_size: 16}], listen: "
	)
	for _, test := range []struct{ text, want string }{
		{"", ""},
		{"metrics: 127.0.0.1:9557\npprof: true\n", ""},
		{public, ""},
		{public + "pprof: true\n", `:2:8: pprof: everybody who can connect to "0.0.0.0:9557" may take profiles`},
		{router + "{address: \"127.0.0.1:1\", allow: all}}\n", ""},
		{router + "{address: \"10.0.0.1:1\", allow: [holders]}}\n", ""},
		{router + "{address: \"10.0.0.1:1\", allow: all}}\n", `:1:47: router.listen: "10.0.0.1:1" is not on loopback, and every peer may register sources and read dumps`},
		{"http_hosts: [h]\n" + router + "{address: \"10.0.0.1:1\", allow: all}}\n", ""},
		{"router: {peers: [\"http://10.0.0.1:1\"]}\n", ""},
		{"router: {peers: [\"https://10.0.0.1:1\", \"http://127.0.0.1:1\"], peer_token_file: /token}\n", ""},
		{"router: {peers: [\"http://127.0.0.1:1\", \"http://10.0.0.1:1\"], peer_token_file: /token}\n",
			`:1:40: router.peers[1]: the token goes to http://10.0.0.1:1 in plain text, for all on the way to read; use https://`},
		{"backend: {redis: {url: \"redis://10.0.0.1\"}}\n", ""},
		{"backend: {redis: {url: \"redis://:word@127.0.0.1\"}}\n", ""},
		{"backend: {redis: {url: \"rediss://:word@10.0.0.1\"}}\n", ""},
		{"backend: {redis: {url: \"unix://:word@/run/redis\"}}\n", ""},
		{"backend: {redis: {url: \"redis-cluster://:word@127.0.0.1?addr=10.0.0.1:1\"}}\n",
			`:1:24: backend.redis.url: the password goes to redis-cluster://10.0.0.1:1 in plain text, for all on the way to read; use rediss-cluster://`},
	} {
		file := write(t, test.text)
		c, err := Load(Source{File: file})
		require.NoError(t, err, test.text)
		warnings := append(c.metricsWarnings(), c.plainTextWarnings()...)
		if c.Router.Listen != nil {
			_, more, err := c.ReadSettings(c.Router.Listen, time.Now())
			require.NoError(t, err, test.text)
			warnings = append(warnings, more...)
		}
		if test.want == "" {
			assert.Empty(t, warnings, test.text)
			continue
		}
		require.Len(t, warnings, 1, test.text)
		assert.True(t, strings.HasPrefix(warnings[0], file+test.want), "%s\n%s", warnings[0], test.want)
	}
}
