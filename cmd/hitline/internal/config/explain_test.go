package config

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// explained loads a file and other sources, and returns the origins of all values by their paths, and the text. The
// file's name is c.yaml.
func explained(t *testing.T, text string, src Source) (map[string]string, string) {
	t.Helper()
	src.File = write(t, text)
	c, err := Load(src)
	require.NoError(t, err)
	values, annotated, err := c.Explain()
	require.NoError(t, err)
	origins := map[string]string{}
	for _, v := range values {
		require.NotContains(t, origins, v.Path, "once")
		origins[v.Path] = strings.ReplaceAll(v.Origin, src.File, "c.yaml")
	}
	return origins, strings.ReplaceAll(string(annotated), src.File, "c.yaml")
}

// Each value has the origin that it was read from, whichever of the sources that was.
func TestExplain(t *testing.T) {
	origins, text := explained(t, `
listen:
  - tcp://127.0.0.1:1
  - tcp://0.0.0.0:2
  - {address: "ipc://@x", tokens: /t}
pool:
  vllm: 0.33.0
  tp_size: 8
  use_eagle: false
  groups: [{block_size: 16}, {kind: mamba, block_size: 32}]
pools: {qwen2: {}, qwen2.5: {tp_size: 2, groups: [{block_size: 16, uniform: true}]}}
router:
  listen: 127.0.0.1:8557
  models: [a, {name: b, hash: {bigrams: false}}]
  sources: [{model: a, instance_id: i, endpoint: "tcp://a:1"}]
limits:
  idle_timeout: 0
`, Source{
		Environ: []string{"HITLINE_LIMITS={max_frames: 7,\n max_unsent: 1KiB}", "HITLINE_POOL_PP_SIZE=2", "HITLINE_METRICS=127.0.0.1:9", "HITLINE_ROUTER_REGISTER=tcp://a:1,tcp://b:1"},
		Flags:   Flags{Loops: new(3)},
	})
	for path, want := range map[string]string{
		"listen[0]":          "c.yaml:3:5",
		"listen[1].address":  "c.yaml:4:5",
		"listen[1].allow[0]": "derived",
		"listen[2].address":  "c.yaml:5:15",
		"listen[2].tokens":   "c.yaml:5:35",
		"listen[2].allow[0]": "derived", // ping, as there are tokens
		"loops":              "--loops",
		"ipc_mode":           "default",

		"pool.vllm":                       "c.yaml:7:9",
		"pool.use_eagle":                  "c.yaml:9:14",
		"pool.pp_size":                    "HITLINE_POOL_PP_SIZE",
		"pool.num_kv_head":                "derived",
		"pool.scheduler_block_size":       "derived",
		"pool.hash_block_size":            "default",
		"pool.groups[0].kind":             "default",
		"pool.groups[1].kind":             "c.yaml:10:37",
		"pools.qwen2.5.tp_size":           "c.yaml:11:39",
		"pools.qwen2.5.num_kv_head":       "derived",
		"pools.qwen2.5.hash_block_size":   "default",
		"pools.qwen2.hash_block_size":     "default",
		"pools.qwen2.5.groups[0].kind":    "default",
		"pools.qwen2.5.groups[0].uniform": "c.yaml:11:77",

		"router.listen":               "c.yaml:13:11",
		"router.models[0].name":       "c.yaml:14:12",
		"router.models[0].block_size": "derived",
		"router.models[1].name":       "c.yaml:14:22",
		// A value that is set to its default is set.
		"router.models[1].hash.bigrams": "c.yaml:14:41",
		"router.models[1].hash.type":    "default",
		"router.sources[0].tenant_id":   "default",
		"router.sources[0].name":        "derived",
		"router.register[1]":            "HITLINE_ROUTER_REGISTER",

		"limits.idle_timeout": "c.yaml:17:17",
		"limits.max_frames":   "HITLINE_LIMITS:1:14",
		"limits.max_unsent":   "HITLINE_LIMITS:2:14",
		"accept_pools":        "default",
	} {
		assert.Equal(t, want, origins[path], path)
	}
	assert.NotContains(t, origins, "pool.cache_prefix", "empty, and nothing says so")
	for line := range strings.Lines(text) {
		assert.LessOrEqual(t, len(line), 81, line)
		if i := strings.IndexByte(line, '#'); i >= 0 {
			assert.Equal(t, originColumn, i, line)
		}
	}

	// The text is a configuration, of the same values.
	again, _ := explained(t, text, Source{})
	for path := range origins {
		assert.Contains(t, again, path)
	}
}

// Permissions stay in the order of the file, in which they have their origins.
func TestExplainAllow(t *testing.T) {
	origins, text := explained(t, "listen:\n- {address: tcp://a:1, allow: [ping, lookup]}\n", Source{})
	assert.Regexp(t, `- ping +# c.yaml:2:32\n +- lookup +# c.yaml:2:38\n`, text)
	assert.Equal(t, "c.yaml:2:32", origins["listen[0].allow[0]"])
}

func TestExplainFlags(t *testing.T) {
	origins, _ := explained(t, "listen: [tcp://a:1]\npool: {groups: [{block_size: 4}, {block_size: 8}]}\n", Source{
		Flags: Flags{Listen: []string{"127.0.0.1:1", "0.0.0.0:2"}, BlockSize: new(32)},
	})
	for path, want := range map[string]string{
		"listen[0]": "--listen", "listen[1].address": "--listen", "listen[1].allow[0]": "derived",
		"pool.hash_block_size": "--block-size", "pool.groups[0].kind": "--block-size", "pool.groups[0].block_size": "--block-size",
	} {
		assert.Equal(t, want, origins[path], path)
	}
}

// The backend in effect has its own defaults, and its password is in neither answer.
func TestExplainBackends(t *testing.T) {
	t.Setenv("MOONCAKE_CONFIG_PATH", "")
	c, err := Load(Source{Environ: []string{"HITLINE_BACKEND_REDIS_URL=redis://:s3cret@h", "HITLINE_BACKEND_REDIS_TTL=1m"}})
	require.NoError(t, err)
	values, text, err := c.Explain()
	require.NoError(t, err)
	assert.NotContains(t, string(text), "s3cret")
	assert.Contains(t, string(text), hidden)
	origins := map[string]string{}
	for _, v := range values {
		assert.NotContains(t, fmt.Sprint(v.Value), "s3cret")
		origins[v.Path] = v.Origin
	}
	for path, want := range map[string]string{
		"backend.redis.url": "HITLINE_BACKEND_REDIS_URL", "backend.redis.ttl": "HITLINE_BACKEND_REDIS_TTL", "backend.redis.pool_size": "default",
		"accept_pools": "derived", "loops": "default", "router.models": "default",
	} {
		assert.Equal(t, want, origins[path], path)
	}
	assert.NotContains(t, string(text), " memory:")
	assert.NotContains(t, string(text), "\npool:", "it has none")
}

// Every value that is set is explained, empty or not.
func TestExplainWhatIsSet(t *testing.T) {
	var probe Config
	for _, leaf := range leaves(t, fieldsOf(&probe), "") {
		if isSection(leaf.dst.Type()) || leaf.dst.Kind() != fieldsOf(new(bool)).Kind() && leaf.dst.Kind() != fieldsOf(new(int)).Kind() {
			continue
		}
		text := "0"
		if leaf.dst.Kind() == fieldsOf(new(bool)).Kind() {
			text = "false"
		}
		name := variableName(leaf.path)
		c, err := Load(Source{Environ: []string{name + "=" + text}})
		if err != nil {
			continue // 0 is out of its range, or its backend needs more
		}
		values, _, err := c.Explain()
		require.NoError(t, err)
		found := ""
		for _, v := range values {
			if v.Path == leaf.path {
				found = v.Origin
			}
		}
		assert.Equal(t, name, found, leaf.path)
	}
}
