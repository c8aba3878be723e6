package config

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/lookup"
)

func TestBackends(t *testing.T) {
	defaults := Default().Backend
	c, err := Load(Source{File: write(t, "backend:\n  redis: {url: redis://h, ttl: 1m, pool_size: 3, timeout: 1s}\n")})
	require.NoError(t, err)
	want := defaults
	want.chosen = "redis"
	want.Redis = Redis{URL: "redis://h", TTL: 60e9, PoolSize: 3, Timeout: 1e9}
	assert.Equal(t, want, c.Backend)

	c, err = Load(Source{File: write(t, "backend:\n  mooncake:\n    masters: [a:1, 'b:2']\n    tenant: t\n    allow_reset: true\n    renew: never\n    remember: 2s\n    groups: true\n")})
	require.NoError(t, err)
	want = defaults
	want.chosen = "mooncake"
	want.Mooncake.Masters, want.Mooncake.Tenant, want.Mooncake.AllowReset, want.Mooncake.Renew = []string{"a:1", "b:2"}, "t", true, "never"
	want.Mooncake.Remember, want.Mooncake.Groups = 2e9, true
	assert.Equal(t, want, c.Backend)
	assert.Equal(t, []lookup.Renewal{lookup.RenewNever, lookup.RenewAlways, lookup.RenewAuto}, []lookup.Renewal{c.Backend.Mooncake.Renew.Lookup(), Renew("always").Lookup(), defaults.Mooncake.Renew.Lookup()})
	assert.Equal(t, []time.Duration{2 * time.Second, 0, -1}, []time.Duration{c.Backend.Mooncake.Remember.Lookup(), defaults.Mooncake.Remember.Lookup(), Remember(0).Lookup()})
}

// The last source that names a backend chooses it.
func TestBackendChoice(t *testing.T) {
	const redis, mooncake = "backend: {redis: {url: redis://f}}\n", "backend: {mooncake: {masters: [f:1]}}\n"
	for name, test := range map[string]struct {
		file    string
		environ []string
		flag    *string
		want    string
	}{
		"none":                   {want: "memory"},
		"an empty section":       {file: "backend:\n", want: "memory"},
		"file":                   {file: redis, want: "redis"},
		"other file":             {file: mooncake, want: "mooncake"},
		"variable":               {environ: []string{"HITLINE_BACKEND_REDIS_URL=redis://v"}, want: "redis"},
		"list variable":          {file: redis, environ: []string{"HITLINE_BACKEND_MOONCAKE_MASTERS=a:1,b:2"}, want: "mooncake"},
		"section variable":       {file: redis, environ: []string{"HITLINE_BACKEND={mooncake: {masters: [v:1]}}"}, want: "mooncake"},
		"backend variable":       {file: redis, environ: []string{"HITLINE_BACKEND_MOONCAKE={masters: [v:1]}"}, want: "mooncake"},
		"variable of the file's": {file: redis, environ: []string{"HITLINE_BACKEND_REDIS_TTL=1s"}, want: "redis"},
		"other variables":        {file: redis, environ: []string{"HITLINE_LOOPS=1"}, want: "redis"},
		"back to memory":         {file: redis, environ: []string{"HITLINE_BACKEND_MEMORY_MAX_ENTRIES=1"}, want: "memory"},
		"flag":                   {file: "backend: {redis: {ttl: 1s}}\n", flag: new("memory"), want: "memory"},
		"flag of the file's":     {file: redis, environ: []string{"HITLINE_BACKEND_MEMORY_MAX_ENTRIES=1"}, flag: new("redis"), want: "redis"},
		"what others set":        {file: redis, environ: []string{"HITLINE_BACKEND_MEMORY_SERVICE_HOST=10.0.0.1"}, want: "redis"},
	} {
		t.Run(name, func(t *testing.T) {
			src := Source{Environ: test.environ, Flags: Flags{Backend: test.flag}}
			if test.file != "" {
				src.File = write(t, test.file)
			}
			c, err := Load(src)
			require.NoError(t, err)
			assert.Equal(t, test.want, c.Backend.Name())
		})
	}
	_, err := Load(Source{Environ: []string{"HITLINE_BACKEND_REDIS_URL=redis://v", "HITLINE_BACKEND_MEMORY_MAX_ENTRIES=1"}})
	require.EqualError(t, err, "HITLINE_BACKEND_REDIS_URL: backend: both memory and redis; a process has one backend, remove the others")
}

// Only the backend in effect is printed, and it reads back to the same.
func TestBackendYAML(t *testing.T) {
	for _, text := range []string{
		"backend: {memory: {max_entries: 3}}\n",
		"backend: {redis: {url: 'rediss://h:1/2?skip_verify=true&server_name=x', ttl: 90s}}\n",
		"backend: {redis: {url: 'unix:///run/a:b@c'}}\n",
		"backend: {mooncake: {masters: ['127.0.0.1:50051', '[::1]:1', h:1], tenant: 'a: b', conns: 2, timeout: 5ms}}\n",
	} {
		c, err := Load(Source{File: write(t, text)})
		require.NoError(t, err)
		printed, err := c.YAML()
		require.NoError(t, err)
		for _, name := range backendNames {
			if shown := "\nbackend:\n  " + name + ":\n"; name == c.Backend.Name() {
				assert.Contains(t, string(printed), shown)
			} else {
				assert.NotContains(t, string(printed), "\n  "+name+":\n")
			}
		}
		assert.NotContains(t, string(printed), "#")
		back, err := Load(Source{File: write(t, string(printed))})
		require.NoError(t, err, "%s", printed)
		require.Equal(t, c.Accepts(), back.Accepts())
		back.origins, back.written, back.AcceptPools = c.origins, c.written, c.AcceptPools
		assert.Equal(t, c, back, "%s", printed)
	}
}

func TestPasswordIsNotPrinted(t *testing.T) {
	c, err := Load(Source{Environ: []string{"HITLINE_BACKEND_REDIS_URL=rediss://me:s3cret@h:1/0"}})
	require.NoError(t, err)
	printed, err := c.YAML()
	require.NoError(t, err)
	assert.Contains(t, string(printed), `url: "rediss://me:***@h:1/0"`)
	assert.Contains(t, string(printed), hidden)
	assert.NotContains(t, string(printed), "s3cret")
	assert.Contains(t, c.Backend.Redis.URL, "s3cret", "printing changes nothing")

	for text, want := range map[string]string{
		"redis://:pw@h":         "redis://:***@h",
		"redis://u:p@w:x@h:1":   "redis://u:***@h:1",
		"redis://u:p/w@h":       "redis://u:***@h",
		"redis://u:p#w@h":       "redis://u:***@h",
		"unix://u:p@/run/x":     "unix://u:***@/run/x",
		"unix:///run/a:b@c":     "unix:///run/a:b@c",
		"redis://h:1/0?ca=/a@b": "redis://h:1/0?ca=/a@b",
		"redis://h":             "redis://h",
		"redis://u@h":           "redis://u@h",
		"redis://u:@h":          "redis://u:@h",
		"no URL":                "no URL",
		"tcp://127.0.0.1:1":     "tcp://127.0.0.1:1",
		"":                      "",
	} {
		assert.Equal(t, want, HidePassword(text), text)
	}
}
