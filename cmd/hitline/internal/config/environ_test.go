package config

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/cmd/internal/environ"
	"github.com/hitline/hitline/coordinator"
)

// The name of a variable is the path of its field. Lists of texts have commas, other structures are YAML.
func TestEnviron(t *testing.T) {
	c, err := Load(Source{Environ: []string{
		"HITLINE_LOOPS=5", "HITLINE_IPC_MODE=0660", "HITLINE_POOL_USE_EAGLE=true", "HITLINE_POOL_MODEL_NAME=123 #x: [", "HITLINE_POOL_RETENTION_INTERVAL=5",
		"HITLINE_POOL_GROUPS=[{kind: mamba, block_size: 16}]", "HITLINE_LISTEN=tcp://a:1, tcp://b:2", "HITLINE_ACCEPT_POOLS=true",
		"HITLINE_POOLS={a: {tp_size: 2}}", "HITLINE_BACKEND_MEMORY_MAX_ENTRIES=5", "HITLINE_LIMITS_MAX_MESSAGE=5KB", "HITLINE_LOG_LEVEL=error",
		"HITLINE_ROUTER_LISTEN=tcp://c:1", "HITLINE_ROUTER_MODELS=[{name: m, block_size: 16}]",
	}})
	require.NoError(t, err)
	want := Default()
	assert.Equal(t, []any{5, Mode(0o660), Listeners("tcp://a:1", "tcp://b:2"), new(true)}, []any{c.Loops, c.IPCMode, c.Listen, c.AcceptPools})
	assert.Equal(t, []any{true, "123 #x: [", new(5)}, []any{c.Pool.UseEagle, c.Pool.ModelName, c.Pool.RetentionInterval})
	assert.Equal(t, []coordinator.Group{{Kind: coordinator.Mamba, BlockSize: 16}}, c.Pool.Groups)
	assert.Equal(t, map[string]coordinator.Pool{"a": {TPSize: 2}}, c.Pools)
	want.Backend.Memory.MaxEntries, want.Limits.MaxMessage, want.Log.Level = 5, 5000, "error"
	assert.Equal(t, []any{want.Backend, want.Limits, want.Log}, []any{c.Backend, c.Limits, c.Log}, "and nothing else")
	assert.Equal(t, &Listener{Address: "tcp://c:1"}, c.Router.Listen)
	assert.Equal(t, "m", c.Router.Models[0].Name)
}

func TestEnvironSections(t *testing.T) {
	c, err := Load(Source{
		File: write(t, "pool: {tp_size: 2, pp_size: 2, model_name: m}\nlimits: {max_hashes: 7}\n"),
		Environ: []string{
			"HITLINE_POOL_TP_SIZE=8", // over the section's, whatever the order
			"HITLINE_POOL={tp_size: 4, pcp_size: 4}",
			"HITLINE_BACKEND={memory: {max_entries: 9}}",
			"HITLINE_LIMITS_MAX_HASHES=9",
			"HITLINE_POOL_RETENTION_INTERVAL=null",
			"HITLINE_POOL_MODEL_NAME=",
		},
	})
	require.NoError(t, err)
	assert.Equal(t, []int{8, 2, 4}, []int{c.Pool.TPSize, c.Pool.PPSize, c.Pool.PCPSize})
	assert.Empty(t, c.Pool.ModelName, "an empty variable is an empty name")
	assert.Equal(t, int64(9), c.Backend.Memory.MaxEntries)
	assert.Equal(t, Size(1<<30), c.Backend.Memory.MaxBytes)
	assert.Equal(t, 9, c.Limits.MaxHashes)
}

func TestEnvironErrors(t *testing.T) {
	for _, test := range []struct{ entry, want string }{
		{"HITLINE_LOOPS=two", `HITLINE_LOOPS: "two" is not a whole number in decimal`},
		{"HITLINE_LOOPS=", `HITLINE_LOOPS: "" is not a whole number in decimal`},
		{"HITLINE_LOOPS=1000", `HITLINE_LOOPS: loops: 1000 is too large, must be at most 256`},
		{"HITLINE_LISTEN=", `HITLINE_LISTEN: listen: no address; give one such as tcp://127.0.0.1:7557`},
		{"HITLINE_LISTEN=tcp://a:1,b", `HITLINE_LISTEN: listen[1]: "b": missing port in address; write tcp://host:port, an IPv6 address in brackets`},
		{"HITLINE_POOL_RETENTION_INTERVAL=", `HITLINE_POOL_RETENTION_INTERVAL: is empty; unset it for the default`},
		{"HITLINE_POOL_GROUPS=[{kind: mamba,\n blok: 1}]", `HITLINE_POOL_GROUPS:2:2: pool.groups[0].blok: unknown field; known are kind, block_size, sliding_window, attention_chunk_size, mamba_cache_mode, variant, uniform, is_eagle_group, extra_retained_tokens, rswa_window, bounded_replay, enable_kv_transfer`},
		{"HITLINE_POOL_GROUPS=[{kind: mamba, block_size: 24}]", `HITLINE_POOL_GROUPS:1:28: pool.groups[0].block_size: block_size 24 is not a multiple of hash_block_size 16`},
		{"HITLINE_LOG=debug", `HITLINE_LOG:1:1: log: "debug" where fields are expected: level, format`},

		{"HITLINE_POOL_TP_SISE=1", `HITLINE_POOL_TP_SISE: no such variable; did you mean HITLINE_POOL_TP_SIZE?`},
		{"HITLINE_LOG_NAME=x", `HITLINE_LOG_NAME: no such variable; unset it`},
		{"HITLINE_LOOP=3", `HITLINE_LOOP: no such variable; did you mean HITLINE_LOOPS?`},
		{"HITLINE_ZZZZZZZZZZZZZZZZZZZZ=1", `HITLINE_ZZZZZZZZZZZZZZZZZZZZ: no such variable; unset it`},
		{"HITLINE_BACKEND_REDIS_URI=redis://x", `HITLINE_BACKEND_REDIS_URI: no such variable; did you mean HITLINE_BACKEND_REDIS_URL?`},
		{"HITLINE_BACKEND_MOONCAKE_MASTERS=", `HITLINE_BACKEND_MOONCAKE_MASTERS: backend.mooncake.masters: is missing; give the RPC addresses of the masters, such as [127.0.0.1:50051], here or with commas between them in HITLINE_BACKEND_MOONCAKE_MASTERS; or name Mooncake's own file by MOONCAKE_CONFIG_PATH`},
		{"HITLINE_BACKEND={redis: {url: redis://x}, memory: {}}", `HITLINE_BACKEND:1:2: backend: both memory and redis; a process has one backend, remove the others`},
		{"HITLINE_BACKEND_ETCD_URL=x", `HITLINE_BACKEND_ETCD_URL: unknown backend "etcd"; use memory, redis or mooncake`},
	} {
		t.Run(test.entry, func(t *testing.T) {
			_, err := Load(Source{Environ: []string{"HOME=/", test.entry}})
			assert.EqualError(t, err, test.want)
		})
	}
}

// Variables that others read or set are none of ours.
func TestEnvironLeftAlone(t *testing.T) {
	c, err := Load(Source{Environ: []string{
		"HITLINE_KERNEL=generic", "HITLINE_CONFORMANCE=/x", "HITLINE_TEST_DRAIN=1", "HITLINE_SERVICE_HOST=10.0.0.1",
		"HITLINE_SERVICE_PORT_TCP=7557", "HITLINE_PORT=tcp://10.0.0.1:7557", "HITLINE_PORT_7557_TCP=tcp://10.0.0.1:7557",
		"HITLINE_POOL_SERVICE_HOST=10.0.0.1", "HITLINE_POOL_PORT=tcp://10.0.0.1:80", "HITLINE_LOG_PORT_80_TCP_ADDR=10.0.0.1",
		"HITLINE_ADDRESS=auto", "HITLINE_TIMEOUT=1", "HITLINE_VLLM=", "HITLINE_ON_MISMATCH=miss", "HITLINE_LOOKUP=whole", "HITLINE_TLS_CA=/x", "HITLINE_TOKEN_FILE=/x",
		"HITLINE_POOL_NAME=x", "HITLINE_POOL_SERVICE_PORT=80", "HITLINE_POOL_SERVICE_PORT_HTTP=80", "hitline_loops=3", "HITLINE",
		"HITLINE_VERSION=1", "HITLINE_DATE=x", "HITLINE_LDFLAGS=-s", "HITLINE_PYTHON_VERSION=3", "HITLINE_WHEEL_PLATFORM=x", "HITLINE_WHEEL_PROGRAMS=x",
	}})
	require.NoError(t, err)
	defaults, err := Load(Source{})
	require.NoError(t, err)
	assert.Equal(t, defaults, c)
}

// The plug-in's variable of the release counts for the server's own pool, if nothing else names one. An engine's own
// server has it, too: it has no pool of its own until the engine describes one.
func TestEnvironRelease(t *testing.T) {
	const engines = "HITLINE_VLLM=0.33.0"
	for file, want := range map[string]string{
		"loops: 1\n":                                      "0.33.0",
		"pool: {tp_size: 2}\n":                            "0.33.0",
		"pool: {vllm: \"0.29.0\"}\n":                      "0.29.0",
		"backend: {mooncake: {masters: [a:1]}}\n":         "",
		"router: {models: [{name: m, block_size: 16}]}\n": "",
	} {
		c, err := Load(Source{File: write(t, file), Environ: []string{engines}})
		require.NoError(t, err)
		assert.Equal(t, want, c.Pool.VLLM, file)
		assert.Equal(t, strings.Contains(file, "mooncake"), c.Accepts(), file)
	}
	c, err := Load(Source{Environ: []string{engines}, Flags: Flags{VLLM: new("0.30.0")}})
	require.NoError(t, err)
	assert.Equal(t, "0.30.0", c.Pool.VLLM)
	_, err = Load(Source{Environ: []string{"HITLINE_VLLM=1"}})
	assert.ErrorContains(t, err, `HITLINE_VLLM: pool.vllm: unknown vLLM release "1", known are `)
}

// environ.Clients has the variables of the plug-in.
func TestVariablesOfThePlugIn(t *testing.T) {
	source, err := os.ReadFile("../../../../clients/python/hitline/variables.py")
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(source), "\nVARIABLES = (")
	require.True(t, found)
	text, _, _ := strings.Cut(rest, "\n)")
	var names []string
	for _, name := range regexp.MustCompile(`"([A-Z_]+)"`).FindAllStringSubmatch(text, -1) {
		names = append(names, "HITLINE_"+name[1])
	}
	assert.ElementsMatch(t, environ.Clients, names)
}

// environ.Sections has the fields at the top of the configuration.
func TestEnvironSectionNames(t *testing.T) {
	assert.Equal(t, fieldNames(reflect.TypeFor[Config]()), environ.Sections)
}
